"""The official `openai` package for Python: chat completions and responses."""

import json
import time
import unittest
import uuid

import openai
from support import KEY, URL, ask_for_echo, native

client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)
WEATHER = {
    "name": "weather",
    "description": "Returns the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CITIES = '/tool weather {"city": "Bern"}\n/tool weather {"city": "Rome"}'


BIG = "/say Seen\n" + "x" * 900_000
TOO_BIG = "x" * ((1 << 20) + 1)
SLEEP = '/tool sleep {"ms": 4000}'


def user(text):
    return {"role": "user", "content": text}


class ChatCompletions(unittest.TestCase):
    def test_text_and_a_session_that_remembers(self):
        headers = {"x-session-id": str(uuid.uuid4())}
        for text in ["Hello", "Again"]:
            found = client.chat.completions.create(
                model="default", messages=[user(f"/say {text}")], extra_headers=headers
            )
            self.assertEqual(found.choices[0].message.content, text)
        messages = native("GET", f"/v1/sessions/{headers['x-session-id']}/messages")["data"]
        self.assertEqual(len(messages), 4)
        self.assertIn("default", [model.id for model in client.models.list()])

    def test_a_stream_with_usage(self):
        chunks = list(client.chat.completions.create(
            model="default", messages=[user("/slow 5 40")], stream=True, stream_options={"include_usage": True}
        ))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        self.assertEqual(len(text.split()), 40)
        self.assertGreater(chunks[-1].usage.total_tokens, 0)

    def test_tools_of_the_client_several_at_once(self):
        tools = [{"type": "function", "function": WEATHER}]
        messages = [user(CITIES)]
        found = client.chat.completions.create(model="default", messages=messages, tools=tools)
        self.assertEqual(found.choices[0].finish_reason, "tool_calls")
        message = found.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            city = json.loads(call.function.arguments)["city"]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": f"sunny in {city}"})
        done = client.chat.completions.create(model="default", messages=messages, tools=tools)
        self.assertRegex(done.choices[0].message.content, r"(?s)sunny in Bern.*sunny in Rome")

    def test_errors(self):
        for fault, reason in [("/fail auth", ""), (TOO_BIG, "1 MiB")]:
            with self.assertRaisesRegex(openai.APIStatusError, reason):
                client.chat.completions.create(model="default", messages=[user(fault)])
        with self.assertRaises(openai.APIError):
            list(client.chat.completions.create(model="default", messages=[user("/fail cut")], stream=True))
        with self.assertRaises(openai.NotFoundError):
            client.chat.completions.create(model="missing", messages=[user("hi")])
        with self.assertRaises(openai.AuthenticationError):
            client.with_options(api_key="wrong").chat.completions.create(model="default", messages=[user("hi")])

    def test_a_client_with_its_default_retries_does_not_repeat_a_turn_that_fails(self):
        headers = {"x-session-id": str(uuid.uuid4())}
        retrying = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY)
        with self.assertRaises(openai.InternalServerError):
            retrying.chat.completions.create(
                model="default", messages=[user("/fail auth")], extra_headers=headers
            )
        messages = native("GET", f"/v1/sessions/{headers['x-session-id']}/messages")["data"]
        self.assertEqual([message["role"] for message in messages], ["user"])

    def test_tools_of_the_server_also_slow_ones_and_big_input(self):
        asks = '/tool echo {"text": "a"}\n/tool echo {"text": "b"}\n/then /say Done'
        for text, reply in [(asks, "Done$"), (SLEEP, "slept 4000 ms"), (BIG, "^Seen$")]:
            found = client.chat.completions.create(model="default", messages=[user(text)])
            self.assertRegex(found.choices[0].message.content, reply)

    def test_an_approval_in_another_client(self):
        session = str(uuid.uuid4())
        native("POST", "/v1/sessions", {"id": session})
        ask_for_echo(session)
        found = client.chat.completions.create(
            model="default", messages=[user('/tool echo {"text": "a"}')], extra_headers={"x-session-id": session}
        )
        self.assertIn("waits for a decision or an answer: echo", found.choices[0].message.content)
        [call] = native("GET", f"/v1/sessions/{session}")["pending"]
        done = native("POST", f"/v1/sessions/{session}/approvals/{call['call_id']}", {"decision": "approve"})
        self.assertEqual(done["status"], "completed")

    def test_an_abort_through_the_http_api_ends_the_stream(self):
        session = str(uuid.uuid4())
        stream = client.chat.completions.create(
            model="default", messages=[user("/slow 50 900")], stream=True, extra_headers={"x-session-id": session}
        )
        chunks = iter(stream)
        while not next(chunks).choices[0].delta.content:
            pass
        self.assertTrue(native("POST", f"/v1/sessions/{session}/abort")["aborted"])
        self.assertEqual([*chunks][-1].choices[0].finish_reason, "stop")


class Responses(unittest.TestCase):
    def test_text_and_what_follows_it(self):
        first = client.responses.create(model="default", input="/say Hello")
        second = client.responses.create(model="default", input="/say Again", previous_response_id=first.id)
        self.assertEqual([first.output_text, second.output_text], ["Hello", "Again"])
        self.assertEqual(client.responses.retrieve(first.id).output_text, "Hello")

    def test_tools_of_the_server_and_a_stream(self):
        asks = '/tool echo {"text": "a"}\n/tool echo {"text": "b"}\n/then /slow 5 40'
        with client.responses.stream(model="default", input=asks) as stream:
            numbers = [event.sequence_number for event in stream]
            response = stream.get_final_response()
        self.assertEqual(numbers, list(range(len(numbers))))
        outputs = [item for item in response.output if item.type == "function_call_output"]
        self.assertEqual(len(outputs), 2)
        self.assertEqual(len(response.output_text.split()), 40)

    def test_tools_of_the_client(self):
        tools = [{"type": "function", "strict": False, **WEATHER}]
        first = client.responses.create(model="default", input=CITIES, tools=tools)
        results = [
            {"type": "function_call_output", "call_id": item.call_id, "output": "sunny"}
            for item in first.output if item.type == "function_call"
        ]
        self.assertEqual(len(results), 2)
        done = client.responses.create(
            model="default", input=results, previous_response_id=first.id, tools=tools
        )
        self.assertIn("sunny", done.output_text)

    def test_an_approval(self):
        session = str(uuid.uuid4())
        client.responses.create(model="default", input="/say hi", conversation=session)
        ask_for_echo(session)
        for approve in [True, False]:
            first = client.responses.create(
                model="default", input='/tool echo {"text": "a"}', conversation=session
            )
            [request] = [item for item in first.output if item.type == "mcp_approval_request"]
            answer = {"type": "mcp_approval_response", "approval_request_id": request.id, "approve": approve}
            done = client.responses.create(model="default", input=[answer], previous_response_id=first.id)
            self.assertEqual(done.status, "completed")

    def test_in_the_background_then_read_again_and_canceled(self):
        first = client.responses.create(model="default", input="/slow 20 60", background=True)
        events = client.responses.retrieve(first.id, stream=True)
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        self.assertEqual(len(text.split()), 60)
        long = client.responses.create(model="default", input="/slow 50 900", background=True)
        client.responses.cancel(long.id)
        deadline = time.monotonic() + 10
        while (status := client.responses.retrieve(long.id).status) == "in_progress":
            self.assertLess(time.monotonic(), deadline)
        self.assertEqual(status, "cancelled")

    def test_a_client_that_returns_in_the_middle_of_the_text(self):
        text, first, last = "", None, None
        with client.responses.create(model="default", input="/slow 20 80", stream=True) as events:
            for event in events:
                first, last = first or event.response, event.sequence_number
                if event.type == "response.output_text.delta":
                    text += event.delta
                    break
        for event in client.responses.retrieve(first.id, stream=True, starting_after=last):
            self.assertEqual(event.sequence_number, last + 1)
            last += 1
            text += event.delta if event.type == "response.output_text.delta" else ""
        self.assertEqual(len(text.split()), 80)

    def test_a_slow_tool_and_big_input(self):
        slow = client.responses.create(model="default", input=SLEEP)
        [output] = [item for item in slow.output if item.type == "function_call_output"]
        self.assertIn("slept 4000 ms", str(output.output))
        self.assertEqual(client.responses.create(model="default", input=BIG).output_text, "Seen")

    def test_errors(self):
        self.assertEqual(client.responses.create(model="default", input="/fail auth").status, "failed")
        kinds = [event.type for event in client.responses.create(model="default", input="/fail cut", stream=True)]
        self.assertIn("response.output_text.delta", kinds)
        self.assertEqual(kinds[-1], "response.failed")
        with self.assertRaisesRegex(openai.BadRequestError, "1 MiB"):
            client.responses.create(model="default", input=TOO_BIG)
        with self.assertRaises(openai.NotFoundError):
            client.responses.create(model="missing", input="hi")
        with self.assertRaises(openai.AuthenticationError):
            client.with_options(api_key="wrong").responses.create(model="default", input="hi")


if __name__ == "__main__":
    unittest.main()
