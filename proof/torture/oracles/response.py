"""Writes a response of a receiver, in HTTP/1.1."""


async def respond(writer, status, headers=""):
    length = "" if status == 204 else "Content-Length: 0\r\n"
    writer.write(f"HTTP/1.1 {status} Status\r\n{length}{headers}\r\n".encode())
    await writer.drain()
    return True
