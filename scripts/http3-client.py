"""Asks a server at PORT of this machine by HTTP/3, and exits with 1 if an answer is wrong."""

import asyncio
import json
import socket
import sys

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import StreamReset


class Client(QuicConnectionProtocol):
    """Sends requests and collects the responses."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)
        self.answers = {}

    async def ask(self, method, path, headers=(), body=b""):
        stream = self._quic.get_next_available_stream_id()
        ended = asyncio.get_running_loop().create_future()
        self.answers[stream] = ([], bytearray(), ended)
        fields = [
            (b":method", method.encode()),
            (b":scheme", b"https"),
            (b":authority", b"localhost"),
            (b":path", path.encode()),
            *headers,
        ]
        self.http.send_headers(stream, fields, end_stream=not body)
        if body:
            self.http.send_data(stream, body, end_stream=True)
        self.transmit()
        return await asyncio.wait_for(ended, 60)

    def quic_event_received(self, event):
        if isinstance(event, StreamReset) and event.stream_id in self.answers:
            self.answers[event.stream_id][2].set_exception(
                RuntimeError(f"reset: {event.error_code}")
            )
        for got in self.http.handle_event(event):
            headers, body, ended = self.answers[got.stream_id]
            if isinstance(got, HeadersReceived):
                headers.extend(got.headers)
            elif isinstance(got, DataReceived):
                body.extend(got.data)
            if got.stream_ended and not ended.done():
                ended.set_result((dict(headers), bytes(body)))


async def main(port, authority):
    configuration = QuicConfiguration(alpn_protocols=H3_ALPN, is_client=True)
    configuration.load_verify_locations(authority)
    configuration.server_name = "localhost"
    async with connect(
        "127.0.0.1", port, configuration=configuration, create_protocol=Client
    ) as client:
        head, body = await client.ask("GET", "/index.php?a=b")
        seen = json.loads(body)
        assert head[b":status"] == b"200", head
        assert seen["SERVER_PROTOCOL"] == "HTTP/3.0" and seen["HTTPS"] == "on", seen
        print("GET: ok")
        _, body = await client.ask("POST", "/index.php", body=b"y" * 300_000)
        assert json.loads(body)["body"] == 300_000
        print("POST: ok")
        _, body = await client.ask("GET", "/index.php?mib=8")
        assert len(body) == 8 << 20
        print("a response of 8 MiB: ok")
        answers = await asyncio.gather(
            *(client.ask("GET", f"/index.php?n={n}") for n in range(100))
        )
        assert [json.loads(body)["QUERY_STRING"] for _, body in answers] == [
            f"n={n}" for n in range(100)
        ]
        print("100 requests at a time: ok")
        # aioquic does not encode a header section as large as the limit.
        head, _ = await client.ask("GET", "/index.php", [(b"x", b"y")] * 101)
        assert head[b":status"] == b"431", head
        print("431: ok")
        head, _ = await client.ask("GET", "/index.php", [(b"connection", b"close")])
        assert head[b":status"] == b"400", head
        print("400: ok")
        # Another port: as if the network had changed. PHP still sees the address that the handshake
        # has proven, because a client can forge a new one until it is validated.
        loop = asyncio.get_running_loop()
        other = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        other.bind(("::", 0))
        before = json.loads((await client.ask("GET", "/index.php"))[1])["REMOTE_PORT"]
        transport, _ = await loop.create_datagram_endpoint(lambda: client, sock=other)
        after = json.loads((await client.ask("GET", "/index.php"))[1])["REMOTE_PORT"]
        assert before == after, (before, after)
        print("a new address of the client: ok")
        transport.close()


asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
