# What the snippets of a table of causes may use: everything but the recorded commands sees these functions.
#
# Whatever is made or changed says first how it is undone, in the file $UNDO: the case's, or the recording's.
set -eu -o pipefail

undo() { printf '%s\n' "$*" >>"$UNDO"; }

# put VALUE FILE: sets a file of /sys or /proc until the end.
put() {
    local old
    old=$(cat "$2")
    case $old in *\[*\]*) old=${old#*\[} old=${old%%\]*} ;; esac
    # By then its device may be gone, and the setting with it.
    undo "[ ! -e '$2' ] || printf %s '$old' > '$2'"
    printf %s "$1" >"$2"
}

# fill FILE MIB: random data, written back.
fill() { dd if=/dev/urandom of="$1" bs=1M count="$2" conv=fsync status=none; }

# drop PATH...: written back and out of the page cache, with everything below.
drop() {
    sync -f "$1"
    find "$@" -type f -print0 | "$PY" -c '
import os, sys
for name in sys.stdin.buffer.read().split(b"\0")[:-1]:
    fd = os.open(name, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
'
}

# fresh: the ground's own file system mounted anew, nothing of it cached.
fresh() {
    local options
    options=$(findmnt -no OPTIONS "$MOUNT")
    umount "$MOUNT"
    mount -o "${1:-$options}" "$DEV" "$MOUNT"
    blockdev --flushbufs "$DEV"
}

# group CONTROLLER NAME: a control group of our own; prints its folder. The recorded command enters it by itself.
group() {
    local own folder
    own=$(sed -n "s/^[0-9]*:\([^:]*,\)\?$1\(,[^:]*\)\?:\(.*\)/\3/p" /proc/self/cgroup)
    folder=/sys/fs/cgroup/$1$own/iowhy-plant-$$-$2
    [ -d "/sys/fs/cgroup/$1" ] || { echo "no control groups of $1 here" >&2; return 1; }
    undo "rmdir '$folder'"
    mkdir -p "$folder"
    echo "$folder"
}

# say NAME VALUE: a variable for everything that follows, the recorded commands as well.
say() { printf '%s=%s\n' "$1" "$2" >>"$VARIABLES"; export "$1=$2"; }

# shared NAME COMMAND: a folder that the whole run makes once; prints its path.
shared() {
    local folder=$SHARED/$1
    if [ ! -d "$folder" ]; then
        mkdir "$folder.part"
        (cd "$folder.part" && shift && eval "$*") >&2
        mv "$folder.part" "$folder"
    fi
    echo "$folder"
}

# sources: prints a folder with some 1500 real files of text, 20 MiB or so, in folders of their own.
sources() {
    shared sources '
        find /usr/include /usr/lib/python3* /usr/share -xdev -type f -size +1k -size -160k \
            \( -name "*.h" -o -name "*.py" -o -name "*.txt" -o -name "*.html" -o -name "*.pm" -o -name "*.sql" \) |
            sort | awk "NR % 3 == 0" | head -n 1500 >../list || :
        tar cf - -T ../list 2>/dev/null | tar xf -'
}

# text FILE MIB: so much of these files in one.
text() {
    local folder
    folder=$(sources)
    (for _ in $(seq 12); do find "$folder" -type f -exec cat {} +; done) 2>/dev/null | head -c "$2M" >"$1" || :
    sync -f "$1"
}

# A cluster of PostgreSQL in $DIR/pg and the words that start it; as another user, for it runs as none but such.
postgres_here() {
    local user=postgres pg template
    id "$user" >/dev/null 2>&1 || user=nobody
    pg=$(dirname "$(readlink -f "$(command -v postgres)")")
    template=$(shared pg "chown $user . && setpriv --reuid $user --regid $(id -g $user) --clear-groups \
        $pg/initdb -D data --no-sync --auth trust -U plant >/dev/null")
    cp -a "$template/data" "$DIR/pg"
    cat >>"$DIR/pg/postgresql.conf" <<END
listen_addresses = ''
unix_socket_directories = '$DIR/pg'
max_connections = 10
shared_buffers = 16MB
autovacuum = off
jit = off
${1:-}
END
    chown "$user" "$DIR/pg/postgresql.conf"
    say PG "$pg"
    say PGHOST "$DIR/pg"
    say PGUSER plant
    say PGDATABASE postgres
    say AS "setpriv --reuid $user --regid $(id -g $user) --clear-groups"
    undo "$AS $PG/pg_ctl -D $DIR/pg stop -m immediate -s 2>/dev/null || :"
}

pg_up() { $AS "$PG/pg_ctl" -D "$DIR/pg" -l "$DIR/pg/log" -w -s start; }
pg_down() { $AS "$PG/pg_ctl" -D "$DIR/pg" -m fast -w -s stop; }

# tree FOLDER FILES KIB: so many files of so many KiB below a folder, 100 in each.
tree() {
    "$PY" - "$@" <<'END'
import os, sys
folder, files, kib = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for nr in range(files):
    if nr % 100 == 0:
        os.makedirs(f"{folder}/{nr // 100:03}", exist_ok=True)
    with open(f"{folder}/{nr // 100:03}/{nr:05}", "wb") as out:
        out.write(os.urandom(kib << 10))
END
    sync -f "$1"
}

# scattered FILE MIB: a file of random data in pieces of 8 KiB between those of another file, which stays.
scattered() {
    echo 0 >"/sys/fs/ext4/${DEV#/dev/}/reserved_clusters"
    "$PY" - "$1" "$2" "$MOUNT" <<'END'
import ctypes, os, sys
name, mib, mount = sys.argv[1], int(sys.argv[2]), sys.argv[3]
ballast = os.open(name + ".ballast", os.O_RDWR | os.O_CREAT, 0o644)
space = os.statvfs(mount)
whole = (space.f_bfree * space.f_bsize - (2 << 20)) & ~0xFFFFF
os.posix_fallocate(ballast, 0, whole)
os.fsync(ballast)
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
piece, nr = 8 << 10, (mib + 6 << 20) // (8 << 10)
for i in range(nr):
    if libc.fallocate(ballast, 3, (whole // nr // 4096 * 4096) * i, piece) != 0:
        sys.exit(os.strerror(ctypes.get_errno()))
os.fsync(ballast)
END
    sync -f "$1.ballast"
    fill "$1" "$2"
    [ "$(filefrag "$1" | sed 's/.*: \([0-9]*\) extents.*/\1/')" -gt $(($2 * 32)) ] || { filefrag "$1" >&2; return 1; }
}

# A loop device over a file, at an index that nobody else takes; sets DEV.
loop_over() {
    local nr node
    for nr in $(seq 300 399); do
        node=/dev/loop$nr
        [ ! -e "/sys/block/loop$nr/loop/backing_file" ] || continue
        if [ ! -e "$node" ]; then
            mknod "$node" b 7 "$nr"
            undo "rm -f $node"
        fi
        undo "losetup -d $node"
        if losetup --direct-io=on "$node" "$1"; then
            DEV=$node
            return
        fi
    done
    echo "no loop device is free" >&2
    return 1
}

# formatted TYPE MKFS-OPTIONS MOUNT-OPTIONS FOLDER: a file system on DEV.
formatted() {
    case $1 in
    ext4) mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0,nodiscard $2 "$DEV" ;;
    *) "mkfs.$1" -q -f -K $2 "$DEV" ;;
    esac
    mkdir -p "$4"
    undo "rmdir '$4'"
    undo "umount '$4'"
    mount -t "$1" -o "$3" "$DEV" "$4"
    chmod 755 "$4"
}

# ground SPEC: a place to work in. KIND[,key=value..], a `+` in a value stands for a comma, a `~` for a space.
#   plain                        a folder on this machine's own disk
#   ext4, xfs [size mkfs mount]  a file system on a loop device over a file in $IMAGES
#   stack [size mkfs mount]      the same over a file on another such file system
#   disk:MODEL [size mkfs mount key..]  ext4 on a modelled disk
ground() {
    local spec=$1 home=$2 kind size=512M mkfs= options=defaults keys=() word
    kind=${spec%%,*}
    [ "$kind" = "$spec" ] && spec= || spec=${spec#*,}
    for word in ${spec//,/ }; do
        word=${word//+/,} word=${word//\~/ }
        case $word in
        size=*) size=${word#*=} ;;
        mkfs=*) mkfs=${word#*=} ;;
        mount=*) options=${word#*=} ;;
        *) keys+=("$word") ;;
        esac
    done
    undo "rmdir '$home'"
    mkdir -p "$home"
    case $kind in
    plain)
        MOUNT= DEV=$(findmnt -no SOURCE -T "$home")
        ;;
    disk:*)
        local name=plant$$
        undo "! '$BIN' disk list --json | grep -q '\"$name\"' || '$BIN' disk remove $name"
        local made
        made=$("$BIN" disk create --model "${kind#disk:}" --name $name --size "$size" "${keys[@]}" --json)
        say DISK $name
        DEV=$(sed -n 's/^ *"node": "\(.*\)",$/\1/p' <<<"$made")
        MOUNT=$home/fs
        formatted ext4 "$mkfs" "$options" "$MOUNT"
        ;;
    *)
        local image=$IMAGES/iowhy-plant-$$.image
        undo "rm -f '$image'"
        fallocate -l "$size" "$image"
        loop_over "$image"
        MOUNT=$home/fs
        if [ "$kind" = stack ]; then
            formatted ext4 "" defaults "$home/under"
            undo "rm -f '$home/under/image'"
            fallocate -l $((${size%M} * 4 / 5))M "$home/under/image"
            loop_over "$home/under/image"
            kind=ext4
        fi
        formatted "$kind" "$mkfs" "$options" "$MOUNT"
        ;;
    esac
    local folder=${MOUNT:-$home}/work
    [ -n "$MOUNT" ] || undo "rm -rf '$folder'"
    mkdir "$folder"
    say DIR "$folder"
    say MOUNT "$MOUNT"
    say DEV "$DEV"
    say QUEUE "/sys/block/${DEV#/dev/}/queue"
    say MAJMIN "$(cat "/sys/block/${DEV#/dev/}/dev")"
}
