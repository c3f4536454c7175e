#!/bin/sh
# Ansible runs this script for its list of hosts. Name your inventory here.
exec ascendboot export.ansible --inventory "${ASCENDBOOT_INVENTORY:-atlas.yaml}"
