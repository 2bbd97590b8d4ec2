# an end of file taken for the end of the process
# ends: timeout
os.close(1); os.close(0); os.close(2)
while True: pass
