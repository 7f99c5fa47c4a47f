"""The client of A2A: gives the default agent a task, and prints the text of its artifacts as it is written."""

import asyncio
import os
import uuid

import httpx
from a2a.client.client import ClientConfig
from a2a.client.client_factory import ClientFactory
from a2a.types import a2a_pb2 as types

URL, KEY = os.environ.get("URL", "http://localhost:8787"), os.environ["KEY"]


async def main():
    headers = {"authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(headers=headers, timeout=600) as http:
        client = await ClientFactory(ClientConfig(httpx_client=http)).create_from_url(URL)
        parts = [types.Part(text="Hello")]
        message = types.Message(message_id=str(uuid.uuid4()), role=types.ROLE_USER, parts=parts)
        async for event in client.send_message(types.SendMessageRequest(message=message)):
            for part in event.artifact_update.artifact.parts:
                print(part.text, end="", flush=True)
            if event.status_update.status.state == types.TASK_STATE_FAILED:
                raise SystemExit("The task failed.")
    print()


asyncio.run(main())
