# a job that never ends
# ends: timeout
while True: pass
