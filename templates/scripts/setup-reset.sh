#!/usr/bin/env bash
# Lists what ascendboot left in the cluster's folder `b`, and removes it where `mode` is remove.
# Arguments: the containers and volumes to remove, each with its engine as this script lists it. The host side
# lists those that have `label`.
: "${b:?}" "${mode:?}" "${side:?}" "${label:?}"
# shellcheck source=templates/scripts/processes.sh
. processes.sh
# shellcheck source=templates/scripts/nft-functions.sh
. nft-functions.sh
shopt -s extglob
declare -A made of_job
loaded='' ours=() foreign=() empty=()
is_of_job() {  # job, path in its folder
  local line
  [ -e "jobs/$1/making" ] && return 0  # cut off while it was made ready: nothing ran there
  if [ "$loaded" != "$1" ]; then
    of_job=() loaded=$1
    while IFS= read -r line; do [ -z "$line" ] || of_job[$line]=1; done 2>/dev/null <"jobs/$1/made"
  fi
  [ -n "${of_job[./$2]-}" ] && return 0
  case $2 in +([0-9a-f])/beat | torchelastic/* | rank.+([0-9]).plog/* | rank.+([0-9]).stack | .stack.+([0-9]) | .stacks) return 0 ;; esac
  return 1
}
is_ours() {
  local rest
  case $1 in
    made | lock | trust/cluster_key | trust/.new.??????/*) return 0 ;;
    env/@(firewall.loaded|firewall.loaded.new) | sshd/@(made|sshd.pid|started|started.new|sshd.log|host_key) | sshd/.new.??????/*) return 0 ;;
    code/@(pushed|links|folders|incoming|stage)) return 0 ;;
    jobs/*/*)
      rest=${1#jobs/}
      is_of_job "${rest%%/*}" "${rest#*/}"
      return ;;
  esac
  [ -n "${made[$1]-}" ] || [ -n "${made[${1%.??????}]-}" ]  # the second: one that was being written
}
is_our_folder() {
  case $1 in
    code | jobs | sshd | trust | env | resources | @(sshd|trust)/.new.??????) return 0 ;;
    jobs/*/*)
      case ${1#jobs/*/} in code | torchelastic | torchelastic/* | rank.+([0-9]).plog | rank.+([0-9]).plog/* | +([0-9a-f])) return 0 ;; esac
      return 1 ;;
    jobs/*) return 0 ;;
  esac
  return 1
}
look() {
  local path
  [ -d "$b" ] && cd -- "$b" || return 0
  while IFS= read -r path; do [ -z "$path" ] || made[$path]=1; done 2>/dev/null <made
  while IFS= read -r -d '' path; do
    case $path in  # kept until it is restored, or nothing of it is left
      npu-network.before) continue ;;
      containers.created) [ -n "$created" ] || ours+=("$path"); continue ;;
    esac
    if [ -d "$path" ] && [ ! -L "$path" ] && is_our_folder "$path"; then empty+=("$path")
    elif [ -f "$path" ] && [ ! -L "$path" ] && is_ours "$path"; then ours+=("$path")
    else foreign+=("$path"); fi
  done < <(find . -mindepth 1 \( ! -type d -o -empty \) -printf '%P\0')
}
# Zombies do not count: the first process of a container may not reap its children.
is_alive() { read_stat "$1" && [ "${fields[0]}" != Z ]; }
find_sshd() {
  local start
  { read -r sshd start _ <"$b/sshd/started"; } 2>/dev/null || return 1
  [ -n "$sshd" ] && is_alive "$sshd" && [ "${fields[19]}" = "$start" ]
}
some_sshd_runs() {
  local process
  for process in /proc/[0-9]*; do
    case $(cat "$process/comm" 2>/dev/null) in
      sshd*) ! is_alive "${process#/proc/}" || return 0 ;;
    esac
  done
  return 1
}
take_back() {
  local path folder run_sshd=
  if find_sshd; then
    kill -TERM "$sshd"
    for _ in {1..100}; do find_sshd || break; sleep 0.05; done
    if find_sshd; then echo "problem the sshd with pid $sshd did not end"; return; fi
  fi
  grep -qsx /run/sshd sshd/made && run_sshd=1
  [ "${#ours[@]}" = 0 ] || printf '%s\0' "${ours[@]}" | xargs -0 rm -f --
  {
    for path in "${ours[@]}" "${empty[@]/%//}"; do
      while [ "$path" != "${path%/*}" ]; do path=${path%/*}; printf '%s\n' "$path"; done
    done
  } | sort -ru | while IFS= read -r folder; do rmdir -- "$folder" 2>/dev/null; done
  cd /
  rmdir -- "$b" 2>/dev/null && rmdir -- "${b%/*}" 2>/dev/null
  [ -z "$run_sshd" ] || some_sshd_runs || rmdir /run/sshd
  for path in "${ours[@]}"; do
    [ ! -e "$b/$path" ] || printf 'problem could not remove %q\n' "$b/$path"
  done
}
for each; do
  read -r engine kind name <<<"$each"
  echo "created $each"
  words=("$kind" rm)
  [ "$kind" = volume ] || words+=(--force)
  "$engine" "${words[@]}" "$name" >/dev/null 2>&1 </dev/null ||
    echo "problem could not remove the $kind $name of $engine"
done
# What is left of those; podman makes folders of its own when it is asked, so only engines that made some.
created=
[ "$side" = container ] || [ ! -e "$b/containers.created" ] || created=$(
  while IFS= read -r engine; do
    { timeout -k 1 20 "$engine" ps -a --filter "label=$label" --format "$engine container {{.Names}}" &&
      timeout -k 1 20 "$engine" volume ls --filter "label=$label" --format "$engine volume {{.Name}}"
    } 2>/dev/null </dev/null || echo unanswered
  done < <(sort -u "$b/containers.created")
)
look
printf 'base %s\nours %s\n' "$b" "${#ours[@]}"
line=; { IFS= read -r -n 4096 line <"$b/owner"; } 2>/dev/null
[ -z "$line" ] || echo "owner $line"
if [ -d "$b" ] && [ "${#ours[@]} ${#empty[@]} ${#foreign[@]}" = '0 0 0' ] &&
  [ ! -e "$b/npu-network.before" ] && [ -z "$created" ]; then
  empty=(.)
fi
[ "${#empty[@]}" = 0 ] || echo empty
for path in "${foreign[@]}"; do printf 'foreign %q\n' "$path"; done
if find_sshd; then echo "sshd $sshd"; fi
if [ "$side" = host ] && [ -e "$b/npu-network.before" ]; then
  while IFS= read -r line; do echo "port $line"; done <"$b/npu-network.before"
fi
if [ "$side" = host ] && list_table; then
  echo "firewall inet $table"
  [ "$mode" != remove ] || "$nft" delete table inet "$table" 2>/dev/null ||
    echo "problem could not remove the table inet $table of nft"
fi
if [ "$mode" = look ]; then sed -n 's/.* .* .*/created &/p' <<<"$created"; fi
[ "$mode" != remove ] || [ ! -d "$b" ] || take_back
echo end
