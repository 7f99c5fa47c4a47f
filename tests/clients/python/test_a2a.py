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
        self.http = httpx.AsyncClient(headers={"authorization": f"Bearer {KEY}"}, timeout=60)
        self.client = await ClientFactory(ClientConfig(httpx_client=self.http)).create_from_url(URL)

    async def asyncTearDown(self):
        await self.http.aclose()

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

    async def test_a_long_task_is_canceled(self):
        events = self.client.send_message(request(text("/slow 50 900")))
        task = (await anext(events)).task
        canceled = await self.client.cancel_task(types.CancelTaskRequest(id=task.id))
        self.assertEqual(canceled.status.state, types.TaskState.TASK_STATE_CANCELED)

    async def test_errors(self):
        failed = await self.send(request(text("/fail auth")))
        self.assertEqual(failed.status.state, types.TaskState.TASK_STATE_FAILED)
        with self.assertRaisesRegex(Exception, "no such task"):
            await self.client.get_task(types.GetTaskRequest(id="trn_none.none"))
        with self.assertRaisesRegex(Exception, "1 MiB"):
            await self.send(request(text("x" * ((1 << 20) + 1))))


if __name__ == "__main__":
    unittest.main()
