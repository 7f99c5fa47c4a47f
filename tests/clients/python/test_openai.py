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
        for fault, kind in [("/fail auth", openai.APIStatusError), ("x" * ((1 << 20) + 1), openai.APIStatusError)]:
            with self.assertRaises(kind):
                client.chat.completions.create(model="default", messages=[user(fault)])
        with self.assertRaises(openai.APIError):
            list(client.chat.completions.create(model="default", messages=[user("/fail cut")], stream=True))
        with self.assertRaises(openai.NotFoundError):
            client.chat.completions.create(model="missing", messages=[user("hi")])
        with self.assertRaises(openai.AuthenticationError):
            client.with_options(api_key="wrong").chat.completions.create(model="default", messages=[user("hi")])


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


if __name__ == "__main__":
    unittest.main()
