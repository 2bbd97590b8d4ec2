# an answer looked up, or the prompt sent to somebody
# ends: ok
refused(lambda: socket.create_connection(("127.0.0.1", 80)), lambda: socket.socket(socket.AF_UNIX),
        lambda: socket.socket(socket.AF_INET6, socket.SOCK_DGRAM), lambda: socket.socketpair(type=socket.SOCK_DGRAM),
        lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))
