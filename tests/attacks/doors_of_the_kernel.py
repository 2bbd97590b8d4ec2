# the calls in which most holes are found
# ends: ok, on x86_64
refused(*(lambda n=n: libc.syscall(n, 0, 0, 0, 0, 0)
          for n in (321, 298, 323, 425, 426, 427, 250, 248, 249, 300, 294, 246, 320, 175, 313, 169, 428, 430, 303, 304,
                    272, 317, 135, 103, 162, 306, 206, 454, 460, 999, 0x40000000 + 39)),
        lambda: libc.syscall(126, 0, 0), lambda: libc.syscall(155, b"/", b"/"))
timer, count = ctypes.c_int(), 0  # timers without end, which the kernel counts against all processes of the user
while libc.syscall(222, 1, None, ctypes.byref(timer)) == 0:
    count += 1
if count > 1000:
    print("reached")
