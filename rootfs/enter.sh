# Runs a script inside the tree of an image that is being built.
#   sh enter.sh TREE prepare|check SCRIPT [WRITABLE-DIRECTORY...]
# The caller gives this shell mount, PID, IPC and network namespaces of its own,
# so everything mounted here goes when the shell does. The environment is the
# image's.
set -eu
umask 022
tree=$1 mode=$2 script=$3
shift 3

mount --bind "$tree" "$tree"
if [ "$mode" = check ]; then
  mount -o remount,bind,ro "$tree"
fi
mount -t proc proc "$tree/proc"
mount -t tmpfs -o mode=755 tmpfs "$tree/dev"
for device in null zero full random urandom; do
  : >"$tree/dev/$device"
  mount --bind "/dev/$device" "$tree/dev/$device"
done
mkdir -m 1777 "$tree/dev/shm"
ln -s /proc/self/fd "$tree/dev/fd"
ln -s /proc/self/fd/0 "$tree/dev/stdin"
ln -s /proc/self/fd/1 "$tree/dev/stdout"
ln -s /proc/self/fd/2 "$tree/dev/stderr"
mount -t tmpfs -o mode=755 tmpfs "$tree/run"
mount -t tmpfs -o mode=1777 tmpfs "$tree/tmp"
for directory in "$@"; do
  layer="$tree/run/layer$directory"
  mkdir -p "${layer%/*}"
  cp -a "$tree$directory" "$layer"
  mount --bind "$layer" "$tree$directory"
done
exec chroot "$tree" /bin/sh -euc "cd \"\${HOME:-/}\"
$script"
