#!/usr/bin/env bash
# Puts a real Apptainer on Debian 12 for the system tests. Root; about ten seconds.
#
#   tests/system/install_apptainer.sh WORK_FOLDER
#
# Debian 12 has no Apptainer, and the one in Debian's unstable suite wants a newer C library. It is
# installed with that library beside it, in a folder that nothing else looks into. The mirror is
# the one this machine's own apt uses. The suite moves, so the version is asserted: when it changes,
# look at what changed before raising the number here.
set -euo pipefail

expected=1.4
work=${1:?usage: install_apptainer.sh WORK_FOLDER}
private=/opt/apptainer-glibc
library=usr/lib/x86_64-linux-gnu

fail() { echo "install_apptainer: $*" >&2; exit 1; }

[ "$(id -u)" = 0 ] || fail "needs root"
. /etc/os-release
[ "$ID-$VERSION_ID" = debian-12 ] || fail "knows only Debian 12, this is $ID $VERSION_ID"
[ -e /dev/fuse ] || mknod /dev/fuse c 10 229
chmod 666 /dev/fuse # an ordinary user mounts images through it
if command -v apptainer >/dev/null; then
  echo "already here: $(apptainer --version)"
  exit 0
fi

if [ -r /etc/apt/sources.list.d/debian.sources ]; then
  mirror=$(awk '/^URIs:/ { print $2; exit }' /etc/apt/sources.list.d/debian.sources)
else
  mirror=$(awk '$1 == "deb" { for (i = 2; i <= NF; i++) if ($i ~ "^https?:") { print $i; exit } }' \
    /etc/apt/sources.list)
fi
[ -n "${mirror:-}" ] || fail "cannot tell this machine's Debian mirror from /etc/apt"

# An apt of its own: the machine's lists and sources stay as they are.
mkdir -p "$work"/lists/partial "$work"/etc/{sources.list.d,preferences.d} \
  "$work"/cache/archives/partial
work=$(cd "$work" && pwd)
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror sid main" \
  >"$work/etc/sources.list"
cat >"$work/apt.conf" <<CONF
Dir::Etc::sourcelist "$work/etc/sources.list";
Dir::Etc::sourceparts "$work/etc/sources.list.d";
Dir::Etc::preferencesparts "$work/etc/preferences.d";
Dir::State::lists "$work/lists";
Dir::Cache "$work/cache";
APT::Sandbox::User "root";
CONF
cd "$work"
export APT_CONFIG=$work/apt.conf
apt-get -qq update
apt-get -qq download apptainer libc6
unset APT_CONFIG

rm -rf unpacked
mkdir unpacked
dpkg -x apptainer_*.deb unpacked
dpkg -x libc6_*.deb unpacked/libc
install -d "$private"
cp -a unpacked/libc/$library/. "$private/"

dpkg -s patchelf >/dev/null 2>&1 || apt-get -qq update
DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
  patchelf squashfs-tools squashfuse fuse-overlayfs fuse2fs fuse3 uidmap libseccomp2 libsqlite3-0 \
  e2fsprogs bubblewrap ca-certificates >/dev/null

for program in unpacked/usr/bin/apptainer unpacked/$library/apptainer/bin/starter; do
  patchelf --force-rpath --set-interpreter "$private/ld-linux-x86-64.so.2" \
    --set-rpath "$private:/lib/x86_64-linux-gnu:/$library" "$program"
done
cp -a unpacked/etc/apptainer /etc/
cp -a unpacked/usr/bin/. /usr/bin/
cp -a unpacked/$library/apptainer /$library/
[ ! -d unpacked/var ] || cp -a unpacked/var/. /var/

version=$(apptainer --version)
case $version in
  *" $expected".*) echo "installed: $version" ;;
  *) fail "expected version $expected, got '$version'" ;;
esac
