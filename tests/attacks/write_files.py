# files left behind, overwritten or deleted
# ends: ok
import shutil
places = (".", "/", "/tmp", "/var/tmp", "/dev/shm", home, project)
file = project + "/verify.py"
refused(*(lambda p=p: open(p + "/" + mark, "w") for p in places), *(lambda p=p: os.mkdir(p + "/" + mark) for p in places),
        lambda: open(file, "a"), lambda: open(file, "r+"), lambda: os.open(file, os.O_RDONLY | os.O_TRUNC),
        lambda: open("/dev/null", "w"), lambda: os.remove(file), lambda: os.rmdir(project + "/tests"),
        lambda: shutil.rmtree(home), lambda: os.rename(file, "/tmp/" + mark), lambda: os.truncate(file, 0),
        lambda: os.remove(victim))
