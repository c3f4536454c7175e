#!/bin/bash
# The first process of a practice node: builds the node's own root, starts its sshd, and becomes
# an init that does nothing but reap. Runs in new mount, UTS, PID and IPC namespaces and in the
# node's network namespace.   usage: boot.sh DISK, where DISK holds boot.conf and the node's files
set -euo pipefail
umask 022
disk=$1
rm -f "$disk/lab/booted"

# /proc is still the machine's, so these are the machine's numbers; lab.down kills the node by them.
read -r -a stat </proc/self/stat
echo "${stat[0]} ${stat[21]}" >"$disk.pid"

name='' disk_options='' container='' overlays=() binds=() masks=() npus=()
# shellcheck source=/dev/null
source "$disk/boot.conf"
root=$disk/root

# -n: mount would leave notes in the machine's /run/mount.
mount() { command mount -n "$@"; }

copy_on_write() { # directory of the machine, directory for what is written
  mkdir -p "$2/upper" "$2/work"
  # When a node boots again, the kernel may not have released these folders yet.
  for _ in {1..20}; do
    mount -t overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" overlay "$root$1" && return
    sleep 0.1
  done
  return 1
}

mkdir -p "$root"
copy_on_write / "$disk/cow"
for place in "${overlays[@]}"; do copy_on_write "$place" "$disk/cow-${place//\//-}"; done

mount -t proc proc "$root/proc"
# What a node sets in /proc/sys outside of net would be set for the whole machine.
mount --bind "$root/proc/sys" "$root/proc/sys"
mount --bind "$root/proc/sys/net" "$root/proc/sys/net"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"

mount -t tmpfs -o mode=755 dev "$root/dev"
for place in null zero full random urandom tty; do
  : >"$root/dev/$place"
  mount --bind "/dev/$place" "$root/dev/$place"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for place in 0:stdin 1:stdout 2:stderr; do
  ln -s "/proc/self/fd/${place%:*}" "$root/dev/${place#*:}"
done
mount -t tmpfs -o mode=1777 shm "$root/dev/shm"
mount -t tmpfs -o "mode=1777,$disk_options" tmp "$root/tmp"
mount -t tmpfs -o mode=755 run "$root/run"
mkdir "$root/run/sshd" "$root/run/lock"
chmod 1777 "$root/run/lock"
mkdir "$root/run/ascendboot-lab"
ln -s /usr/local/Ascend/lab/{faults,npu-load} "$root/run/ascendboot-lab/"

if [[ -d $disk/files ]]; then
  cp -a --remove-destination "$disk/files/." "$root/"
  rm -rf "$disk/files"
  # The machine may be a node of a cluster itself, and tests may have left something there.
  rm -rf "${root:?}/var/lib/ascendboot"
fi
mount --bind "$disk/home" "$root/root"
mount --bind "$disk/ssh" "$root/etc/ssh"
mkdir -p "$root/usr/local/Ascend/lab"
mount --bind "$disk/lab" "$root/usr/local/Ascend/lab"
for i in "${!npus[@]}"; do
  : >"$disk/lab/npu/$i"
  mount --bind "${npus[i]}" "$root/usr/local/Ascend/lab/npu/$i"
done
for place in "${binds[@]}"; do
  mkdir -p "$root$place"
  mount --bind "$place" "$root$place"
  mount -o remount,bind,ro "$root$place"
done
# The file server that clusters have for checkpoints: one folder of all nodes.
mkdir -p "${disk%/*}/shared" "$root/shared"
chmod 1777 "${disk%/*}/shared"
mount --bind "${disk%/*}/shared" "$root/shared"
for place in "${masks[@]}"; do
  [[ ! -d $root$place ]] || mount -t tmpfs -o ro,mode=700 hidden "$root$place"
done

# The container's image: the machine's root, read-only, without the places that each node has for
# itself. A separate overlay, because the kernel stacks no more than two: this one and podman's.
if [[ -n $container ]]; then
  image=$root/run/ascendboot-lab/image
  mkdir -p "$image"
  mount -t overlay -o "lowerdir=$disk/image:/" overlay "$image"
  for place in "${overlays[@]}"; do
    mount -t overlay -o "lowerdir=$disk/image$place:$place" overlay "$image$place"
  done
  mkdir -p "$root/var/lib/containers"
  mount --bind "$disk/containers" "$root/var/lib/containers"
  mount --rbind --make-rprivate /sys/fs/cgroup "$root/sys/fs/cgroup"
fi

# Reserves HCCL's ports, so that no outgoing connection gets one; servers should have this.
echo 60000-60031 >"$root/proc/sys/net/ipv4/ip_local_reserved_ports"
hostname "$name"
cd "$root"
mkdir -p .machine
pivot_root . .machine
cd /
umount -l /.machine
rmdir /.machine

/usr/local/Ascend/lab/start-sshd
[[ -z $container ]] || /usr/local/Ascend/lab/start-container >/dev/null
: >/usr/local/Ascend/lab/booted
if init=$(command -v tini); then
  exec "$init" -- sleep infinity >/dev/null 2>&1
fi
# Bash reaps every process that ends while it waits.
exec bash -c 'while :; do sleep infinity & wait $!; done' >/dev/null 2>&1
