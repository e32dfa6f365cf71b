#!/usr/bin/env bash
# Puts a real Slurm on a Debian machine for the system tests. Root; about twenty seconds, or none
# where it is here already. Starts nothing: see slurm/test_cluster.sh.
#
#   tests/system/install_slurm.sh [--accounting]
set -euo pipefail

packages=(slurm-wlm munge)
programs=(slurmctld slurmd sbatch munged)
if [ "${1:-}" = --accounting ]; then
  packages+=(slurmdbd slurm-wlm-mysql-plugin mariadb-server)
  programs+=(slurmdbd mariadbd)
fi

missing=()
for program in "${programs[@]}"; do command -v "$program" >/dev/null || missing+=("$program"); done
if [ ${#missing[@]} = 0 ]; then
  echo "already here: $(slurmd -V)"
  exit 0
fi
[ "$(id -u)" = 0 ] || { echo "install_slurm: needs root (missing: ${missing[*]})" >&2; exit 1; }
command -v apt-get >/dev/null || { echo "install_slurm: knows only apt-get" >&2; exit 1; }

# The packages would start daemons of their own; the tests start theirs.
policy=/usr/sbin/policy-rc.d
[ -e $policy ] || { printf '#!/bin/sh\nexit 101\n' > $policy; chmod +x $policy; trap 'rm -f $policy' EXIT; }
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
for program in "${programs[@]}"; do
  command -v "$program" >/dev/null || { echo "install_slurm: still no $program" >&2; exit 1; }
done
echo "installed: $(slurmd -V)"
