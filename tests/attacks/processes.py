# a process that outlives the trainer, or another program in the place of this one
# ends: ok
import subprocess
refused(os.setsid, lambda: os.setpgid(0, 0), os.fork, lambda: subprocess.run(["true"]),
        lambda: os.execv("/bin/sh", ["sh", "-c", "echo reached"]), lambda: os.posix_spawn("/bin/true", ["true"], {}))
