# another user's rights, or a world of its own, where it is root
# ends: ok
refused(lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]), lambda: os.setresuid(0, 0, 0),
        lambda: os.chroot("/"), lambda: libc.unshare(0x10000000), lambda: libc.unshare(0x20000),
        lambda: libc.setns(0, 0), lambda: libc.mount(b"none", b"/tmp", b"tmpfs", 0, 0), lambda: libc.umount2(b"/", 2))
