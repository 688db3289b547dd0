"""Plays steps through Signalbox's MCP server with the official Python SDK.

Standard input has the address, the binary, the key of each role, and the steps. The coordinator speaks over HTTP as
the SDK likes best, the reviewer over HTTP as before 2026, and the others over standard input and output.
"""

import asyncio
import contextlib
import json
import sys

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client


async def main():
    plan = json.load(sys.stdin)
    async with contextlib.AsyncExitStack() as stack:
        clients = {}
        for role, key in plan["keys"].items():
            if role in ("coordinator", "reviewer"):
                http = httpx2.AsyncClient(headers={"Authorization": "Bearer " + key}, timeout=60)
                await stack.enter_async_context(http)
                to = streamable_http_client(plan["url"] + "/mcp", http_client=http)
            else:
                to = StdioServerParameters(
                    command=plan["binary"], args=["mcp", "--server", plan["url"], "--key", key])
            mode = "legacy" if role == "reviewer" else "auto"
            clients[role] = await stack.enter_async_context(Client(to, mode=mode))
        offered = {}
        for role, client in clients.items():
            offered[role] = [tool.name for tool in (await client.list_tools()).tools]
        results, last = [], {}
        for step in plan["steps"]:
            text = json.dumps(step.get("args") or {})
            for name, value in last.items():
                text = text.replace("$" + name, value)
            result = await clients[step["role"]].call_tool(step["tool"], json.loads(text))
            data = result.structured_content or {}
            for message in data.get("messages") or []:
                last["msg"] = message.get("msg_id") or message.get("id")
            results.append({
                "tool": step["tool"], "failed": bool(result.is_error), "structured": bool(data),
                "text": result.content[0].text,
            })
        print(json.dumps({"offered": offered, "results": results}))


asyncio.run(main())
