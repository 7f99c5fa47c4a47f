"""What the tests of the clients for Python share: the real Worker, which URL and KEY name."""

import os

import httpx

URL, KEY = os.environ["URL"], os.environ["KEY"]


def native(method, path, body=None):
    """Sends a request of the native API."""
    headers = {"authorization": f"Bearer {KEY}"}
    return httpx.request(method, URL + path, json=body, headers=headers, timeout=60).json()


def ask_for_echo(session):
    """Makes the tool `echo` ask for approval in a session."""
    native("PATCH", f"/v1/sessions/{session}", {"permissions": {"tools": {"echo": "ask"}}})
