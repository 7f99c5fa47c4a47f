"""Chat completions of the `openai` package: streams a reply in a session."""

import os

from openai import OpenAI

URL, KEY = os.environ.get("URL", "http://localhost:8787"), os.environ["KEY"]

client = OpenAI(base_url=f"{URL}/v1", api_key=KEY)
stream = client.chat.completions.create(
    model="default",
    messages=[{"role": "user", "content": "Hello"}],
    stream=True,
    extra_headers={"x-session-id": "chat-completions-py"},
)
for chunk in stream:
    print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
