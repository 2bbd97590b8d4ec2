# the same on the other channel
# ends: timeout
while True: print('x' * 10**6, file=sys.stderr)
