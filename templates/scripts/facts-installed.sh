#!/usr/bin/env bash
# Queries what ascendboot has installed below `b`: files, keys, certificates and its sshd. Builtins
# wherever possible: this runs for every setup and every job, and each program that a shell starts
# takes milliseconds on a busy node.
# shellcheck source=templates/scripts/sshd-functions.sh
. sshd-functions.sh
# shellcheck source=templates/scripts/nft-functions.sh
. nft-functions.sh
: "${b:?}" "${owner_bytes:?}" "${certificate_bytes:?}" "${private?}" "${certificates?}"
: "${with_firewall?}"
echo "base $b"
if [ -d "$b" ]; then real=$(cd -P -- "$b" && pwd); else real=$(readlink -m -- "$b"); fi
[ "${real:-$b}" = "$b" ] || echo "leads $real"
above=()
# As sshd's StrictModes, up to the user's home: a person who can replace that can act as this user.
up() {
  local d=$1
  while [ "$d" != / ] && [ "$d" != "$2" ]; do
    d=${d%/*} d=${d:-/}
    [ ! -d "$d" ] || above+=("$d")
  done
}
home=; [ "$EUID" = 0 ] || home=${HOME%/}
up "$b" "$home"
[ "${real:-$b}" = "$b" ] || up "$real" "${home:+$(cd -P -- "$home" && pwd)}"
[ ! -d "$b" ] || { cd -- "$b" && above+=(.); }
# Nobody else can replace files in a folder with the sticky bit. A name with a line end is not one of
# ours and could forge a line of this answer.
find -H "${above[@]}" -path $'*\n*' -prune \
  -o -path '/*' \( ! -uid 0 ! -uid "$EUID" -printf 'above %m %U %U:%G %p\n' \
    -o -perm /022 ! -perm -1000 -printf 'above %m - %U:%G %p\n' -o -true \) -prune \
  -o \( ! -uid "$EUID" -printf 'open %m %U %y %p\n' \
    -o ! -type l -perm /022 -printf 'open %m - %y %p\n' -o -true \) -path ./jobs -prune \
  -o -type f ! -name '*_key' ! -name '*.log' ! -name lock \
    -printf 'mode %m %p\n' -exec sha256sum {} + \
  -o \( -path ./sshd/host_key -o -path ./trust/cluster_key \) -printf 'mode %m %p\n' || exit 1
if [ -d "$b" ]; then
  for k in $private; do
    [ -e "$k" ] || continue
    ! read -r kind public _ < <(ssh-keygen -y -P '' -f "$k" 2>/dev/null) ||
      echo "key $k $kind $public"
  done
  while read -r key p; do
    if [[ $key == Port && $p =~ ^[0-9]+$ ]]; then echo "port $p"; fi
  done 2>/dev/null <sshd/sshd_config
  text=; { IFS= read -r -n "$owner_bytes" text <owner; } 2>/dev/null
  [ -z "$text" ] || echo "owner $text"
  for c in $certificates; do
    [ -f "$c" ] || continue
    text=; { IFS= read -r -n "$certificate_bytes" text <"$c"; } 2>/dev/null
    [ -z "$text" ] || echo "certificate $c $text"
  done
fi
if read -r pid start sha cert 2>/dev/null <"$b/sshd/started"; then
  { read -r noted <"$b/sshd/sshd.pid"; } 2>/dev/null || noted=
  is_sshd_of_ours "$pid" && [ "$(start_of "$pid")" = "$start" ] &&
    [ "$noted" = "$pid" ] && echo "sshd $pid $sha ${cert:--}" || pid=
fi
for p in $(sshds_of_ours "${pid-}"); do
  echo "stray $p"
done
if [ -n "$with_firewall" ] || [ -e "$b/env/firewall.loaded" ]; then
  if list_table; then
    rules='' listed=''
    read -r rules listed 2>/dev/null <"$b/env/firewall.loaded"
    if [ "$(sum_of_table)" = "${listed:-none}" ]; then state="loaded $rules"; else state=changed; fi
  fi
  echo "firewall $state"
fi
echo end
