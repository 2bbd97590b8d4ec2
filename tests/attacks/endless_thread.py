# a thread that goes on after the program's last line
# ends: timeout
threading.Thread(target=time.sleep, args=(1e6,)).start()
