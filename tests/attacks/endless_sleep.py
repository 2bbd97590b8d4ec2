# a job that never ends, and takes no processor time
# ends: timeout
time.sleep(1e6)
