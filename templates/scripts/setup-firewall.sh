#!/usr/bin/env bash
# Loads the rules of the cluster's own table of nft in place of those that it has, or removes the table
# where `mode` is remove. `b` is the cluster's folder. What nft lists then is recorded by its SHA-256
# together with that of the rules, because the form of a listing differs between versions of nft.
: "${b:?}" "${mode:?}"
# shellcheck source=templates/scripts/nft-functions.sh
. nft-functions.sh
cd -- "$b/env" || exit 1
if [ "$mode" = remove ]; then
  if list_table; then "$nft" delete table inet "$table" </dev/null || exit 1
  elif [ "$state" != absent ]; then echo "nft: $state" >&2; exit 1; fi
  rm -f -- firewall.loaded
  exit
fi
list_table
{ "$nft" -f firewall.nft </dev/null && list_table; } || exit 1
rules=$(sha256sum <firewall.nft)
echo "${rules%% *} $(sum_of_table)" >firewall.loaded.new && mv -f firewall.loaded.new firewall.loaded
