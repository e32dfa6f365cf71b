#!/usr/bin/env bash
# A real Slurm on one machine, for tests: two CPU and two "GPU" nodes (fake A100s), partitions like
# Grace's, a partition that preempts and one that is preempted. Needs root, not systemd.
#
#   slurm/test_cluster.sh up ROOT [--accounting]     then: export SLURM_CONF=ROOT/etc/slurm.conf
#   slurm/test_cluster.sh node ROOT NAME             start one node again (after it was killed)
#   slurm/test_cluster.sh down ROOT
#
# apt-get install slurm-wlm munge; with --accounting also slurmdbd slurm-wlm-mysql-plugin mariadb-server
set -euo pipefail

usage() { sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2; }
[ $# -ge 2 ] || usage
verb=$1
root=$(readlink -m "$2")
option=${3:-}
nodes=(cpu1 cpu2 gpu1 gpu2)
ports=([0]=16831 [1]=16832 [2]=16833 [3]=16834)
export SLURM_CONF=$root/etc/slurm.conf

until_true() { # at most 20 s
  local _
  for _ in $(seq 400); do "$@" >/dev/null 2>&1 && return 0; sleep 0.05; done
  echo "test_cluster: gave up waiting for: $*" >&2
  return 1
}
running() { [ -s "$1" ] && kill -0 "$(cat "$1")" 2>/dev/null; }
stop() { # those of the pid files' processes that run; at most 5 s, then the hard way
  local file pids=() pid _
  for file in "$@"; do running "$file" && pids+=("$(cat "$file")"); done
  [ ${#pids[@]} = 0 ] && return
  kill "${pids[@]}" 2>/dev/null || true
  for _ in $(seq 50); do kill -0 "${pids[@]}" 2>/dev/null || break; sleep 0.1; done
  for pid in "${pids[@]}"; do gone "$pid" || kill -9 "$pid" 2>/dev/null || true; done
}
gone() { ! kill -0 "$1" 2>/dev/null; }
all_idle() { [ "$(sinfo -Nh -p short -t idle -o %N | sort -u | wc -l)" = "${#nodes[@]}" ]; }

need() {
  local missing=() program
  for program in "$@"; do command -v "$program" >/dev/null || missing+=("$program"); done
  [ ${#missing[@]} = 0 ] && return
  echo "test_cluster: missing ${missing[*]}; apt-get install slurm-wlm munge (slurmdbd slurm-wlm-mysql-plugin mariadb-server)" >&2
  exit 1
}

write_config() {
  mkdir -p "$root"/{etc,state,log,run,db}
  local i
  for i in 0 1; do [ -e "$root/run/nvidia$i" ] || mknod "$root/run/nvidia$i" c 1 3; done
  {
    cat <<CONF
ClusterName=testcluster
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire=8
CryptoType=crypto/munge
StateSaveLocation=$root/state
SlurmdSpoolDir=$root/spool/%n
SlurmctldPidFile=$root/run/slurmctld.pid
SlurmdPidFile=$root/run/slurmd-%n.pid
SlurmctldLogFile=$root/log/slurmctld.log
SlurmdLogFile=$root/log/slurmd-%n.log
SlurmdParameters=config_overrides
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout=10
InactiveLimit=0
MinJobAge=300
KillWait=5
OverTimeLimit=0
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0,sched_min_interval=0,requeue_delay=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
MaxArraySize=1001
JobRequeue=1
EnforcePartLimits=ALL
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
GresTypes=gpu
CONF
    if [ "$option" = --accounting ]; then
      printf '%s\n' AccountingStorageType=accounting_storage/slurmdbd AccountingStorageHost=localhost \
        AccountingStoragePort=16819 AccountingStorageTRES=gres/gpu AccountingStorageEnforce=limits JobCompType=jobcomp/none
    else
      printf '%s\n' AccountingStorageType=accounting_storage/none JobCompType=jobcomp/none
    fi
    for i in "${!nodes[@]}"; do
      gres=""; [[ ${nodes[$i]} == gpu* ]] && gres=" Gres=gpu:a100:2"
      echo "NodeName=${nodes[$i]} NodeHostname=localhost NodeAddr=127.0.0.1 Port=${ports[$i]} CPUs=8 RealMemory=8000$gres"
    done
    cat <<CONF
PartitionName=short    Nodes=cpu1,cpu2,gpu1,gpu2 Default=YES MaxTime=02:00:00 DefaultTime=00:10:00 PriorityTier=10
PartitionName=medium   Nodes=cpu1,cpu2,gpu1,gpu2 MaxTime=1-00:00:00 PriorityTier=10
PartitionName=gpu      Nodes=gpu1,gpu2 MaxTime=4-00:00:00 PriorityTier=10
PartitionName=scavenge Nodes=cpu1,cpu2,gpu1,gpu2 MaxTime=1-00:00:00 PriorityTier=1 GraceTime=0
PartitionName=urgent   Nodes=cpu1,cpu2,gpu1,gpu2 MaxTime=1-00:00:00 PriorityTier=100
CONF
  } > "$SLURM_CONF"
  echo "NodeName=gpu[1-2] Name=gpu Type=a100 Count=2 File=$root/run/nvidia[0-1]" > "$root/etc/gres.conf"
  printf '%s\n' CgroupPlugin=cgroup/v1 ConstrainCores=no ConstrainRAMSpace=no ConstrainDevices=no > "$root/etc/cgroup.conf"
}

start_munge() {
  munge -n >/dev/null 2>&1 && return
  install -d -m 755 -o munge -g munge /run/munge
  su -s /bin/sh munge -c /usr/sbin/munged
  until_true munge -n
  cp /run/munge/munged.pid "$root/run/munged.pid" # ours to stop; one that was there stays
}

start_accounting() {
  chown mysql "$root/db"
  install -d -o mysql /run/mysqld
  [ -d "$root/db/data" ] || mariadb-install-db --user=mysql --datadir="$root/db/data" \
    --auth-root-authentication-method=normal --skip-test-db > "$root/log/mariadb-install.log" 2>&1 ||
    { echo "test_cluster: no database in $root/db; can the user mysql enter it?" >&2
      tail -3 "$root/log/mariadb-install.log" >&2; return 1; }
  setsid mariadbd --no-defaults --user=mysql --datadir="$root/db/data" --socket=/run/mysqld/mysqld.sock \
    --skip-networking --innodb-flush-log-at-trx-commit=0 --log-error="$root/db/err.log" >/dev/null 2>&1 &
  echo $! > "$root/run/mariadb.pid"
  until_true mariadb-admin --no-defaults -S /run/mysqld/mysqld.sock -uroot ping
  printf '%s\n' AuthType=auth/munge DbdHost=localhost DbdAddr=127.0.0.1 DbdPort=16819 SlurmUser=root \
    StorageType=accounting_storage/mysql StorageHost=localhost StorageUser=root StorageLoc=slurm_acct_db \
    "LogFile=$root/log/slurmdbd.log" "PidFile=$root/run/slurmdbd.pid" > "$root/etc/slurmdbd.conf"
  chmod 600 "$root/etc/slurmdbd.conf"
  slurmdbd
  until_true sacctmgr -n list cluster
  sacctmgr -nP list cluster format=cluster | grep -qx testcluster || sacctmgr -iQ add cluster testcluster
}

case $verb in
  up)
    need slurmctld slurmd munge munged sinfo
    write_config
    start_munge
    if [ "$option" = --accounting ]; then need slurmdbd mariadbd; start_accounting; fi
    slurmctld -c
    for node in "${nodes[@]}"; do mkdir -p "$root/spool/$node"; slurmd -N "$node"; done
    until_true all_idle
    echo "export SLURM_CONF=$SLURM_CONF"
    ;;
  node)
    [ -n "$option" ] || usage
    slurmd -N "$option"
    ;;
  down)
    # Compute daemons and controller at once, the database after those that write to it.
    stop "$root"/run/slurmd-*.pid "$root"/run/slurmctld.pid
    stop "$root"/run/slurmdbd.pid
    stop "$root"/run/mariadb.pid
    stop "$root"/run/munged.pid
    ;;
  *) usage ;;
esac
