#!/usr/bin/env python3
"""A connection that breaks: forwards TCP to a server, and loses answers together with the connection they were on.

  cutting_proxy.py SERVER_PORT PORT_FILE CUTS

Writes its own port to PORT_FILE. Each of the first CUTS connections is cut at its 6th to 12th piece of answers, which is not
delivered; later ones stay.
"""

import os
import selectors
import socket
import sys


def forward(listener, server_port, cuts):
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    peers, pieces_left = {}, {}
    num_connections = 0

    def close(end):
        for one in (end, peers[end]):
            selector.unregister(one)
            one.close()
        other = peers.pop(end)
        del peers[other]
        pieces_left.pop(end, None)
        pieces_left.pop(other, None)

    while True:
        for key, _ in selector.select():
            end = key.fileobj
            if end is listener:
                client = listener.accept()[0]
                server = socket.create_connection(("127.0.0.1", server_port))
                peers[client], peers[server] = server, client
                if num_connections < cuts:
                    pieces_left[server] = 6 + num_connections % 7
                num_connections += 1
                selector.register(client, selectors.EVENT_READ)
                selector.register(server, selectors.EVENT_READ)
            elif end in peers:
                try:
                    data = end.recv(1 << 16)
                    if end in pieces_left:
                        pieces_left[end] -= 1
                        if pieces_left[end] == 0:
                            data = b""
                    if data:
                        peers[end].sendall(data)
                except OSError:
                    data = b""
                if not data:
                    close(end)


def main(server_port, port_file, cuts):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with open(port_file + ".new", "w") as file:
            file.write(str(listener.getsockname()[1]))
        os.rename(port_file + ".new", port_file)
        forward(listener, int(server_port), int(cuts))


if __name__ == "__main__":
    main(*sys.argv[1:])
