# the tests, the data set, the keys, the trainer's memory or the user's files read
# ends: ok
files = (project + "/verify.py", project + "/tests/attacks/read_files.py", victim, "/etc/passwd", "/proc/self/environ",
         "/proc/self/maps", "/proc/self/mem", "/proc/1/environ")
folders = (project, home, "/", "/proc", "/tmp", "/etc", ".", "/proc/self/fd/0/..")
refused(*(lambda p=p: open(p).close() for p in files), *(lambda p=p: os.listdir(p) for p in folders),
        *(lambda p=p: os.listdir(p + "/../../../../../..") for p in sys.path),
        *(lambda n=n: os.listdir(f"/proc/self/fd/{n}/../../..") for n in range(3, 128)),
        *(lambda p=p, w=w: open(f"/proc/{p}/{w}").close() for p in (trainer, os.getppid())
          for w in ("environ", "mem", "maps", "cmdline", "fd/0", "stat")))
