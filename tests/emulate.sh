#!/usr/bin/env bash
# Runs the test binaries on other machines than this one, each emulated, with a Linux kernel of its own:
#   x86_64 with 64 CPUs, some of which are taken offline and brought back all the time;
#   aarch64 with 16 CPUs and restartable sequences.
# Usage: tests/emulate.sh short|long [x86_64|aarch64]...
#   short: a minute or so for each machine: the stress test; on aarch64 also rcu, percpu_ref and faults without what takes long.
#   long: ten times the stress, those four whole, and ten more test binaries without the hundred thousand freezes of gate: a
#     quarter of an hour for each machine on two cores; stopped after one and a half.
#   --install: fetch what is missing with apt-get first (root, Debian).
# PERCPU_REF_EMULATE_TESTS: only these, separated by blanks: stress, rcu, percpu_ref and faults, and with `long` also those
# that the list at the end of this file adds.
# What is fetched and built stays in ${PERCPU_REF_EMULATE:-target/emulate}.
# An emulated machine shows what is right, never what is fast; and an x86 host orders an aarch64 guest's memory accesses
# more strongly than a real one would, so this proves the sequences and not the barriers.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
project=$PWD

# The comment above.
usage() { sed -n '2,/^[^#]/ s/^# //p' "${BASH_SOURCE[0]}" >&2; exit 2; }
length='' install='' machines=()
for argument in "$@"; do
    case $argument in
        short | long) length=$argument ;;
        --install) install=yes ;;
        x86_64 | aarch64) machines+=("$argument") ;;
        *) usage ;;
    esac
done
[[ $length ]] || usage
[[ ${#machines[@]} -gt 0 ]] || machines=(x86_64 aarch64)
cache=${PERCPU_REF_EMULATE:-$project/target/emulate}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)

say() { printf 'emulate: %s\n' "$*" >&2; }
fail() { say "$@"; exit 1; }

debian_name() { if [[ $1 == x86_64 ]]; then echo amd64; else echo arm64; fi; }
tools_for() {
    if [[ $1 == x86_64 ]]; then echo qemu-system-x86 cpio; else echo qemu-system-arm cpio gcc-aarch64-linux-gnu libc6-dev-arm64-cross; fi
}
programs_for() {
    if [[ $1 == x86_64 ]]; then echo qemu-system-x86_64 cpio; else echo qemu-system-aarch64 cpio aarch64-linux-gnu-gcc; fi
}

# Whether programs for a machine can be linked: a cross compiler may be there without its C library. Those for x86_64 are
# linked as everything else here is.
links_for() { [[ $1 == x86_64 ]] || aarch64-linux-gnu-gcc -x c - -o /dev/null <<<'int main(void) { return 0; }' 2>/dev/null; }

# Makes sure that the programs for a machine are there.
need_programs() {
    local missing=() program
    for program in $(programs_for "$1"); do command -v "$program" >/dev/null || missing+=("$program"); done
    if [[ ${#missing[@]} == 0 ]]; then
        links_for "$1" && return
        missing=("a C library for $1")
    fi
    [[ $install ]] || fail "${missing[*]} missing: apt-get install $(tools_for "$1"), or run this with --install"
    say "installing $(tools_for "$1")"
    apt-get update -q >"$cache/apt.log" 2>&1 || fail "apt-get update: see $cache/apt.log"
    # shellcheck disable=SC2046
    DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $(tools_for "$1") >>"$cache/apt.log" 2>&1 ||
        fail "apt-get install: see $cache/apt.log"
}

# apt-get with package lists of its own, of the given suite, for both architectures: the system's stay as they are.
apt_of() {
    local suite=$1 state=$cache/apt-$1
    shift
    mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
    if [[ ! -e $state/sources ]]; then
        # From wherever this system has its own packages.
        local mirror
        mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | sort -u | head -n 1)
        [[ $mirror ]] || fail "this system has no Debian package list: apt-get update"
        echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$state/sources"
    fi
    "$1" -q -o Dir::Etc::SourceList="$state/sources" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$state/lists" \
        -o Dir::Cache="$state/cache" -o APT::Architectures::=amd64 -o APT::Architectures::=arm64 -o Acquire::Languages=none \
        -o APT::Sandbox::User=root "${@:2}"
}

# Downloads packages of a suite and lays their files into a folder.
unpack() {
    local suite=$1 into=$2
    shift 2
    local debs
    debs=$(mktemp -d "$cache/debs.XXXXXX")
    if [[ ! -e $cache/apt-$suite/updated ]]; then
        apt_of "$suite" apt-get update >"$cache/apt.log" 2>&1 || fail "the list of packages: see $cache/apt.log"
        touch "$cache/apt-$suite/updated"
    fi
    (cd "$debs" && apt_of "$suite" apt-get download "$@") >>"$cache/apt.log" 2>&1 || fail "packages $*: see $cache/apt.log"
    mkdir -p "$into"
    for deb in "$debs"/*.deb; do dpkg-deb -x "$deb" "$into"; done
    rm -r "$debs"
}

# The guest's kernel, shell and C library.
need_guest() {
    local debian tree=$cache/guest-$1 image
    debian=$(debian_name "$1")
    [[ -e $tree/complete ]] && return
    command -v dpkg-deb >/dev/null || fail "this needs Debian's packages, and there is no dpkg-deb here"
    say "fetching the kernel for $1"
    rm -rf "$tree"
    unpack bookworm "$tree" "busybox-static:$debian" "libc6:$debian" "libgcc-s1:$debian"
    image=$(apt_of bookworm apt-cache depends "linux-image-cloud-$debian:$debian" | sed -n 's/.*Depends: \(linux-image-[0-9][^:< ]*\).*/\1/p' | head -n 1)
    [[ $image ]] || fail "Debian has no kernel for $1"
    unpack bookworm "$tree" "$image:$debian"
    touch "$tree/complete"
}

# A compiler with the standard library of aarch64. Sets `compiler`.
need_compiler() {
    local target=$1-unknown-linux-gnu tree=$cache/rust
    compiler=$(rustc --print sysroot)/bin/rustc
    compgen -G "$("$compiler" --print target-libdir --target "$target")/libstd-*.rlib" >/dev/null && return
    # The installed one knows x86_64 only. Debian's stable compiler is too old for this crate, and another compiler's
    # standard library cannot be used; so a newer compiler and its libraries are laid into a folder of their own.
    compiler=$tree/rustc
    [[ -x $compiler ]] && return
    say "fetching a compiler for $1"
    unpack sid "$tree/tree" rustc:amd64 libstd-rust-dev:amd64 libstd-rust-dev:arm64 libc6:amd64 libgcc-s1:amd64 libstdc++6:amd64 \
        zlib1g:amd64 libzstd1:amd64 libtinfo6:amd64 libffi8:amd64 libedit2:amd64 libbsd0:amd64 libmd0:amd64 libz3-4:amd64
    local more
    # Those whose names have a version in them.
    more=$(apt_of sid apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
        --no-enhances rustc:amd64 | grep -E '^(libstd-rust-[0-9.]+|libllvm[0-9]+|libxml2-[0-9]+)$' | sort -u | sed 's/$/:amd64/')
    # shellcheck disable=SC2086
    unpack sid "$tree/tree" $more
    cat >"$tree/rustc.new" <<SCRIPT
#!/bin/sh
tree=$tree/tree
exec "\$tree/usr/lib64/ld-linux-x86-64.so.2" --library-path "\$tree/usr/lib/x86_64-linux-gnu" --argv0 rustc "\$tree/usr/bin/rustc" --sysroot "\$tree/usr" "\$@"
SCRIPT
    chmod +x "$tree/rustc.new"
    "$tree/rustc.new" --version >&2 || fail "the compiler from Debian does not run here"
    mv "$tree/rustc.new" "$compiler"
}

# Builds the tests as a crate of their own, which depends on nothing but this one, libc, crossbeam-epoch and what `long` adds.
build() {
    local target=$1-unknown-linux-gnu crate=$cache/crate test compiler
    need_compiler "$1"
    mkdir -p "$crate/src"
    : >"$crate/src/lib.rs"
    {
        printf '[package]\nname = "emulated"\nversion = "0.0.0"\nedition = "2024"\npublish = false\nautotests = false\n\n[workspace]\n\n'
        printf '[dependencies]\npercpu-ref = { path = "%s" }\nlibc = "0.2"\n%s\n[profile.release]\nopt-level = 1\ndebug-assertions = true\ncodegen-units = 4\n' "$project" "$dependencies"
        for test in "${tests[@]}"; do printf '\n[[test]]\nname = "%s"\npath = "%s/tests/%s.rs"\n' "$test" "$project" "$test"; done
    } >"$crate/Cargo.toml"
    [[ -e $crate/Cargo.lock ]] || cp "$project/Cargo.lock" "$crate/"
    say "building for $1"
    binaries=$(cd "$crate" && RUSTC=$compiler CARGO_TARGET_DIR=$cache/target-$1 RUSTFLAGS='' \
        CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
        cargo test --quiet --release --no-run --target "$target" --message-format json-render-diagnostics 2>"$cache/build.log" |
        sed -n 's/.*"executable":"\([^"]*\)".*/\1/p') || { tail -n 40 "$cache/build.log" >&2; fail "the build for $1 failed"; }
    [[ $binaries ]] || fail "the build for $1 made no test"
}

# Boots the machine with the tests in its memory and runs them all. The guest's last word is what counts.
run() {
    local arch=$1 cpus=$2 unplug=$3 tree=$cache/guest-$1 root log libraries loader console binary name status=0
    local qemu
    if [[ $arch == x86_64 ]]; then
        qemu=(qemu-system-x86_64 -machine q35) console=ttyS0 libraries=lib/x86_64-linux-gnu loader=lib64/ld-linux-x86-64.so.2
    else
        qemu=(qemu-system-aarch64 -machine 'virt,gic-version=3') console=ttyAMA0 libraries=lib/aarch64-linux-gnu loader=lib/ld-linux-aarch64.so.1
    fi
    root=$(mktemp -d "$cache/root.XXXXXX") log=$cache/$arch.log
    mkdir -p "$root"/{bin,proc,sys,dev,tmp,tests,"$libraries","$(dirname "$loader")"}
    cp "$tree/bin/busybox" "$root/bin/"
    for name in libc.so.6 libm.so.6 libgcc_s.so.1 libdl.so.2 libpthread.so.0 librt.so.1; do cp -L "$tree/$libraries/$name" "$root/$libraries/"; done
    cp -L "$tree/$libraries/$(basename "$loader")" "$root/$loader"
    for binary in $binaries; do
        name=$(basename "$binary")
        cp "$binary" "$root/tests/${name%-*}"
    done
    rm -f "$root/tests/emulated"
    {
        echo '#!/bin/busybox sh'
        echo '/bin/busybox --install -s /bin; export PATH=/bin TMPDIR=/tmp'
        echo 'mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp'
        echo "export PERCPU_REF_EXPECT_BACKEND=rseq PERCPU_REF_PATIENCE=$patience PERCPU_REF_STRESS_SECONDS=$seconds PERCPU_REF_STRESS_WORKERS=$workers"
        echo "export UNPLUG='$unplug' SKIP='$skip' TESTS='${PERCPU_REF_EMULATE_TESTS:-$default}'"
        cat <<'GUEST'
echo "guest: Linux $(uname -rm), $(nproc) CPUs of $(cat /sys/devices/system/cpu/possible)"
if [ "$UNPLUG" ]; then
    (
        rounds=0; echo 0 >/tmp/rounds
        while :; do
            for cpu in $UNPLUG; do echo 0 >/sys/devices/system/cpu/cpu$cpu/online && usleep 200000; done
            [ "$rounds" = 0 ] && echo "guest: now $(nproc) CPUs"
            for cpu in $UNPLUG; do echo 1 >/sys/devices/system/cpu/cpu$cpu/online && usleep 200000; done
            rounds=$((rounds + 1)); echo $rounds >/tmp/rounds
        done
    ) &
fi
failed=
for test in $TESTS; do
    echo "guest: $test, $(cut -d' ' -f1 /proc/uptime) s after the start"
    skip=
    for name in $SKIP; do skip="$skip --skip $name"; done
    /tests/$test --nocapture --test-threads=2 $skip 2>&1 | tee /tmp/out | grep -vE "^$|^running"; grep -q "^test result: ok" /tmp/out || failed="$failed $test"
done
[ ! "$UNPLUG" ] || { kill %1; echo "guest: CPUs were taken away and brought back $(cat /tmp/rounds) times"; }
[ "$failed" ] && echo "guest-failed:$failed" || echo guest-passed
poweroff -f
GUEST
    } >"$root/init"
    chmod +x "$root/init"
    (cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$cache/$arch.cpio.gz"
    rm -r "$root"
    say "$arch with $cpus CPUs, for at most $limit s"
    timeout -k 5 "$limit" "${qemu[@]}" -cpu max -accel tcg,thread=multi -smp "$cpus" -m 2048 -nographic -no-reboot \
        -kernel "$(compgen -G "$tree/boot/vmlinuz-*" | head -n 1)" -initrd "$cache/$arch.cpio.gz" \
        -append "console=$console quiet panic=-1 ${4:-}" </dev/null >"$log" 2>&1 || status=$?
    sed -i 's/\r//g' "$log"
    grep -aE '^guest|^test result|panicked|FAILED|hangs|operations|kills|seen at' "$log" || true
    grep -aqx 'guest-passed' "$log" && return
    tail -n 30 "$log" >&2
    fail "$arch: the tests did not pass (status $status); all of it is in $log"
}

tests=(stress rcu percpu_ref faults) dependencies=$'crossbeam-epoch = "0.9"\n'
if [[ $length == short ]]; then
    seconds=4 workers=6 limit=600 patience=10
    # Long on a machine that emulates more CPUs than there are, and nothing that the others do not show.
    skip='three_hundred more_threads_than_lanes sixty nobody_gets_in_after sixteen_submitters no_section_outlives traffic during_the_first out_of_memory by_the_thousand looks_at a_thousand lives_follow'
else
    # Each of those freezes interrupts every emulated CPU: hours.
    seconds=40 workers=24 limit=5400 patience=20 skip='a_hundred_thousand'
    tests+=(gate shared messages page_pool page_pool_faults page_pool_races ptr_ring ptr_ring_abuse stall stats)
    dependencies+=$'parking_lot = "0.13"\ntokio = { version = "1", features = ["macros", "rt-multi-thread", "sync", "time"] }\n'
fi
for machine in "${machines[@]}"; do
    # Every membarrier there interrupts 64 emulated CPUs: the other tests take minutes, and run with `long`.
    if [[ $length$machine == shortx86_64 ]]; then default=stress; else default="${tests[*]}"; fi
    need_programs "$machine"
    need_guest "$machine"
    build "$machine"
    started=$SECONDS
    if [[ $machine == x86_64 ]]; then run x86_64 64 '1 40 63'; else run aarch64 16 ''; fi
    say "$machine passed in $((SECONDS - started)) s"
done
