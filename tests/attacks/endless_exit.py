# an exit function that never ends
# ends: timeout
import atexit
atexit.register(time.sleep, 1e6)
