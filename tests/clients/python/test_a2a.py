"""The official `a2a-sdk` package for Python."""

import unittest
import uuid

import httpx
from a2a.client.client import ClientConfig
from a2a.client.client_factory import ClientFactory
from a2a.types import a2a_pb2 as types
from google.protobuf.json_format import MessageToDict, ParseDict
from support import KEY, URL, ask_for_echo


def request(parts, **more):
    message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": parts, **more}
    return ParseDict({"message": message}, types.SendMessageRequest())


def text(words):
    return [{"text": words}]


class A2a(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.client = await self.connect()

    async def connect(self, key=KEY, path=""):
        http = httpx.AsyncClient(headers={"authorization": f"Bearer {key}"}, timeout=60)
        self.addAsyncCleanup(http.aclose)
        return await ClientFactory(ClientConfig(httpx_client=http)).create_from_url(URL + path)

    async def send(self, asked):
        """Sends a message, and returns the task at the end of the stream."""
        async for event in self.client.send_message(asked):
            kind = event.WhichOneof("payload")
            task_id = event.task.id if kind == "task" else getattr(event, kind).task_id
        return await self.client.get_task(types.GetTaskRequest(id=task_id))

    async def test_text_tools_and_a_second_message_in_the_same_context(self):
        asks = '/tool echo {"text": "a"}\n/tool echo {"text": "b"}\n/then /slow 5 40'
        first = await self.send(request(text(asks)))
        self.assertEqual(first.status.state, types.TaskState.TASK_STATE_COMPLETED)
        self.assertEqual(len(first.artifacts[-1].parts[0].text.split()), 40)
        second = await self.send(request(text("/say Again"), contextId=first.context_id))
        self.assertEqual(second.artifacts[0].parts[0].text, "Again")
        found = await self.client.list_tasks(types.ListTasksRequest(context_id=first.context_id))
        self.assertEqual([task.id for task in found.tasks], [second.id, first.id])

    async def test_an_approval(self):
        context = str(uuid.uuid4())
        await self.send(request(text("/say hi"), contextId=context))
        ask_for_echo(context)
        task = await self.send(request(text('/tool echo {"text": "a"}'), contextId=context))
        self.assertEqual(task.status.state, types.TaskState.TASK_STATE_INPUT_REQUIRED)
        [pending] = MessageToDict(task.status.message.parts[1].data)["pending"]
        answer = [{"data": {"callId": pending["callId"], "approved": True}}]
        done = await self.send(request(answer, contextId=context, taskId=task.id))
        self.assertEqual((done.id, done.status.state), (task.id, types.TaskState.TASK_STATE_COMPLETED))

    async def test_a_refusal_and_a_question(self):
        context = str(uuid.uuid4())
        await self.send(request(text("/say hi"), contextId=context))
        ask_for_echo(context)
        task = await self.send(request(text('/tool echo {"text": "a"}\n/then /say Fine'), contextId=context))
        done = await self.send(request(text("no"), contextId=context, taskId=task.id))
        self.assertEqual(done.artifacts[-1].parts[0].text, "Fine")
        task = await self.send(request(text('/tool ask_user {"question": "Tea?"}')))
        self.assertEqual(task.status.state, types.TaskState.TASK_STATE_INPUT_REQUIRED)
        done = await self.send(request(text("With milk"), contextId=task.context_id, taskId=task.id))
        self.assertIn("With milk", done.artifacts[-1].parts[0].text)

    async def test_a_subscription_outlasts_a_wait(self):
        task = await self.send(request(text('/tool ask_user {"question": "Tea?"}\n/then /say Served')))
        events = self.client.subscribe(types.SubscribeToTaskRequest(id=task.id))
        self.assertEqual((await anext(events)).task.status.state, types.TaskState.TASK_STATE_INPUT_REQUIRED)
        await self.send(request(text("Yes"), contextId=task.context_id, taskId=task.id))
        states = [event.status_update.status.state async for event in events if event.WhichOneof("payload") == "status_update"]
        self.assertEqual(states, [types.TaskState.TASK_STATE_WORKING, types.TaskState.TASK_STATE_COMPLETED])

    async def test_a_long_task_is_canceled(self):
        events = self.client.send_message(request(text("/slow 50 900")))
        task = (await anext(events)).task
        canceled = await self.client.cancel_task(types.CancelTaskRequest(id=task.id))
        self.assertEqual(canceled.status.state, types.TaskState.TASK_STATE_CANCELED)

    async def test_a_client_that_returns_in_the_middle_of_the_text(self):
        events = self.client.send_message(request(text("/slow 20 80")))
        task = (await anext(events)).task
        while not (await anext(events)).artifact_update.artifact.parts:
            pass
        await events.aclose()
        artifacts = {}
        async for event in self.client.subscribe(types.SubscribeToTaskRequest(id=task.id)):
            update = event.artifact_update
            before = artifacts.get(update.artifact.artifact_id, "") if update.append else ""
            artifacts[update.artifact.artifact_id] = before + "".join(part.text for part in update.artifact.parts)
        self.assertEqual(len("".join(artifacts.values()).split()), 80)

    async def test_a_slow_tool_and_big_input(self):
        slow = await self.send(request(text('/tool sleep {"ms": 4000}')))
        self.assertIn("slept 4000 ms", slow.artifacts[-1].parts[0].text)
        big = await self.send(request(text("/say Seen\n" + "x" * 900_000)))
        self.assertEqual(big.artifacts[0].parts[0].text, "Seen")

    async def test_errors(self):
        for fault in ["/fail auth", "/fail cut"]:
            failed = await self.send(request(text(fault)))
            self.assertEqual(failed.status.state, types.TaskState.TASK_STATE_FAILED)
        wrong = await self.connect("wrong")
        with self.assertRaisesRegex(Exception, "401|key"):
            await anext(wrong.send_message(request(text("hi"))))
        with self.assertRaisesRegex(Exception, "404"):
            await self.connect(path="/a2a/missing/")
        with self.assertRaisesRegex(Exception, "no such task"):
            await self.client.get_task(types.GetTaskRequest(id="trn_none.none"))
        with self.assertRaisesRegex(Exception, "1 MiB"):
            await self.send(request(text("x" * ((1 << 20) + 1))))


if __name__ == "__main__":
    unittest.main()
