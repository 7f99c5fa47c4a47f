"""Hooks of Schemathesis: who sends a request, what it names, and what more a response must fulfill.

The environment variable WORLD has what the test has created, as JSON:

    {"operator": KEY, "idle_tenant": ID, "tenants": [{"key": KEY, "secret": TEXT, "known": [{"id": SESSION, …}, …]}, …]}

Each entry of `known` has the parameters of a path that belong together.
"""

import json
import os
import zlib

import jsonschema_rs
import schemathesis

WORLD = json.loads(os.environ["WORLD"])

# These do not reach what others need. A tenant that moves refuses requests with 503, a deleted one is gone, and limits or
# an erasure leave nothing to find.
DESTRUCTIVE = {
    "deleteSession", "deleteResponse", "eraseUserOfTenant", "deleteTenant", "updateTenant", "moveTenant", "revokeKey",
}
# A turn responds in one of these forms.
FORMS = [{}, {"Accept": "text/event-stream"}, {"Prefer": "respond-async"}]


def choice(case, count):
    """Chooses one of `count`, always the same one for the same request."""
    request = [case.operation.label, case.path_parameters, case.query, case.body, dict(case.headers or {})]
    return zlib.crc32(repr(request).encode()) % count


@schemathesis.hook
def before_call(context, case, kwargs):
    chosen, name = choice(case, 1 << 30), case.operation.definition.raw["operationId"]
    # Schemathesis learns texts from responses. A tenant that sent the secret of another would get it back.
    sent = repr([case.query, case.body])
    while any(tenant["secret"] in sent for tenant in WORLD["tenants"]) and (
        WORLD["tenants"][chosen % len(WORLD["tenants"])]["secret"] not in sent
    ):
        chosen += 1
    tenant = WORLD["tenants"][chosen % len(WORLD["tenants"])]
    is_operators = case.operation.path.startswith("/v1/admin/")
    case.headers = case.headers or {}
    case.headers["Authorization"] = "Bearer " + (WORLD["operator"] if is_operators else tenant["key"])
    if name in DESTRUCTIVE:
        # Schemathesis learns ids from responses.
        case.path_parameters = {parameter: "none" for parameter in case.path_parameters}
    # Most requests name what exists, and some of these what exists in the other tenant.
    elif chosen // 2 % 8 and isinstance(case.path_parameters, dict):
        other = WORLD["tenants"][(chosen + 1) % len(WORLD["tenants"])]
        known = (other if chosen // 16 % 8 == 0 else tenant)["known"]
        names = case.path_parameters.keys()
        fitting = [one for one in known if names <= one.keys()] or [one for one in known if names & one.keys()]
        if is_operators and "tenant" in names:
            case.path_parameters["tenant"] = WORLD["idle_tenant"]
        elif fitting:
            one = fitting[chosen // 128 % len(fitting)]
            case.path_parameters.update({name: one[name] for name in names & one.keys()})
            # A session of another user is not found.
            case.query = {name: value for name, value in (case.query or {}).items() if name != "user"}
    if name == "streamEvents":
        # Otherwise the stream stays open.
        case.query = {**(case.query or {}), "until": "idle"}
        if chosen // 1024 % 2:
            case.headers["Accept"] = "application/x-ndjson"
    elif "202" in case.operation.definition.raw["responses"] and case.method == "POST" and not is_operators:
        case.headers.update(FORMS[chosen // 1024 % len(FORMS)])
    # Tells the checks which texts the response must not have.
    case.headers["X-Request-Id"] = "t%d" % (chosen % len(WORLD["tenants"]))


@schemathesis.check
def lines_match_the_schema(ctx, response, case):
    """Schemathesis itself compares the events of `text/event-stream`."""
    if response.headers.get("content-type") != ["application/x-ndjson"]:
        return
    components = case.operation.schema.raw_schema["components"]
    event = jsonschema_rs.validator_for({"$ref": "#/components/schemas/Event", "components": components})
    for line in filter(None, response.text.split("\n")):
        event.validate(json.loads(line))


@schemathesis.check
def tenants_are_isolated(ctx, response, case):
    if case.operation.path.startswith("/v1/admin/"):
        return
    sender = int(case.headers["X-Request-Id"][1:])
    for index, tenant in enumerate(WORLD["tenants"]):
        assert index == sender or tenant["secret"].encode() not in response.content, "a response has the data of another tenant"
