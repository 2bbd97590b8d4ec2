# rights, times or attributes of files, and links through which a later job reads or writes
# ends: ok
refused(lambda: os.chmod(victim, 0o777), lambda: os.utime(victim), lambda: os.chown(victim, 1, 1),
        lambda: os.setxattr(victim, "user.x", b"1"), lambda: os.chmod(0, 0o777), lambda: os.chmod(project, 0),
        lambda: os.symlink(project, "/tmp/" + mark), lambda: os.link(project + "/verify.py", "/tmp/" + mark),
        lambda: os.symlink("/etc", mark), lambda: os.mkfifo("/tmp/" + mark), lambda: os.mknod("/tmp/" + mark))
