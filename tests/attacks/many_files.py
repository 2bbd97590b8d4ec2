# file descriptors without end
# ends: ok
hold = []
try:
    while True:
        hold.append(os.dup(0))
except OSError:
    print("reached" if len(hold) > 200 else "")
