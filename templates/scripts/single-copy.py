# Tests whether a process may copy from the memory of another one of the same user.
#
# A parent may read the memory of its child wherever the kernel permits it at all; Open MPI permits
# the same to siblings (prctl PR_SET_PTRACER). Seccomp refuses it for all processes.
import ctypes, os
class Part(ctypes.Structure):
    _fields_ = [("place", ctypes.c_void_p), ("size", ctypes.c_size_t)]
libc = ctypes.CDLL(None, use_errno=True)
source, target = ctypes.create_string_buffer(8), ctypes.create_string_buffer(8)
theirs = Part(ctypes.addressof(source), 8)
ours = Part(ctypes.addressof(target), 8)
wait, go = os.pipe()
child = os.fork()
if not child:
    os.close(go)
    os.read(wait, 1)
    os._exit(0)
one = ctypes.c_ulong(1)
copied = libc.process_vm_readv(
    child, ctypes.byref(ours), one, ctypes.byref(theirs), one, ctypes.c_ulong(0)
)
error = ctypes.get_errno()
os.close(go)
os.waitpid(child, 0)
print("allowed" if copied == 8 else "refused " + os.strerror(error))
