#!/usr/bin/env bash
# Makes a root file system shaped like an official SWE-bench image, out of this machine's packages.
#
#   containers/toy_rootfs.sh OUT_FOLDER
#
# No network and no registry: it copies what dpkg says the packages below installed, with all they
# depend on. The result has /testbed, an /opt/miniconda3 whose `bin/activate` defines `conda`, an
# environment `testbed` in it, and a /root/.bashrc that activates it, so that what works in it
# meets the same paths as in a real image. Build the image with
#   apptainer build toy.sif OUT_FOLDER
set -euo pipefail

out=${1:?usage: toy_rootfs.sh OUT_FOLDER}
packages=(bash dash coreutils util-linux git patch sed grep findutils diffutils python3-minimal
  libpython3-stdlib procps hostname base-files base-passwd)

fail() { echo "toy_rootfs: $*" >&2; exit 1; }

for package in "${packages[@]}"; do
  dpkg -s "$package" >/dev/null 2>&1 || fail "this machine lacks $package: apt-get install it"
done
rm -rf "$out"
mkdir -p "$out"/usr/{bin,lib,sbin,lib64} "$out"/{dev,proc,sys,tmp,root,home,run,etc,opt,srv,mnt} \
  "$out"/var/tmp "$out"/testbed
for folder in bin lib sbin lib64; do ln -s "usr/$folder" "$out/$folder"; done

apt-cache depends --recurse --installed --no-recommends --no-suggests --no-conflicts --no-breaks \
  --no-replaces --no-enhances "${packages[@]}" |
  sed -n 's/^\([a-z0-9][^ :]*\).*/\1/p' | sort -u |
  while read -r package; do dpkg -L "$package" 2>/dev/null || true; done | sort -u |
  grep -vE '^/usr/share/(doc|man|locale|info|lintian|bash-completion)/' |
  while read -r path; do [ -d "$path" ] && [ ! -L "$path" ] || echo "${path#/}"; done >"$out.list"
# Compiled when the packages were set up, so that no package lists them; without them every start of
# Python compiles what it imports.
find /usr/lib/python3.[0-9]* -name '*.pyc' 2>/dev/null | cut -c2- >>"$out.list" || true
tar -C / -cf - --ignore-failed-read -T "$out.list" 2>/dev/null |
  tar -C "$out" -xf - --keep-directory-symlink
rm "$out.list"

[ -e "$out/usr/bin/sh" ] || ln -s dash "$out/usr/bin/sh"
python=$(cd "$out/usr/bin" && ls python3.*[0-9] | head -1)
ln -sf "$python" "$out/usr/bin/python3"
chmod 1777 "$out/tmp" "$out/var/tmp"
echo 'root:x:0:0:root:/root:/bin/bash' >"$out/etc/passwd"
echo 'root:x:0:' >"$out/etc/group"
echo '127.0.0.1 localhost' >"$out/etc/hosts"
touch "$out"/etc/{resolv.conf,localtime,locale.gen}

conda=$out/opt/miniconda3
mkdir -p "$conda"/{bin,etc/profile.d,envs/testbed/bin}
ln -s "../../../../../usr/bin/$python" "$conda/envs/testbed/bin/python"
ln -s python "$conda/envs/testbed/bin/python3"
cat >"$conda/etc/profile.d/conda.sh" <<'CONDA'
conda() {
  [ "$1" = activate ] || return 0
  export CONDA_DEFAULT_ENV=${2:-base} CONDA_PREFIX=/opt/miniconda3/envs/${2:-base}
  export PATH=$CONDA_PREFIX/bin:$PATH
}
CONDA
echo '. /opt/miniconda3/etc/profile.d/conda.sh' >"$conda/bin/activate"
echo '. /opt/miniconda3/etc/profile.d/conda.sh && conda activate testbed' >"$out/root/.bashrc"

chown -Rh 0:0 "$out" 2>/dev/null || true
# As the images: commands run where the repository is.
(cd "$out/testbed" && git init -q . && git -c user.name=toy -c user.email=toy@example.org \
  commit -q --allow-empty -m start)
command -v ldconfig >/dev/null && ldconfig -r "$out" 2>/dev/null || true
