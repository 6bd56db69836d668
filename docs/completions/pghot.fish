# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_pghot_global_optspecs
    string join \n h/help V/version
end

function __fish_pghot_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_pghot_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_pghot_using_subcommand
    set -l cmd (__fish_pghot_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c pghot -n "__fish_pghot_needs_command" -s h -l help -d 'Print help'
complete -c pghot -n "__fish_pghot_needs_command" -s V -l version -d 'Print version'
complete -c pghot -n "__fish_pghot_needs_command" -f -a "run" -d 'Run the daemon in the foreground until a signal ends it'
complete -c pghot -n "__fish_pghot_needs_command" -f -a "status" -d 'Show what the daemon does, and why nothing moves if nothing does'
complete -c pghot -n "__fish_pghot_needs_command" -f -a "metrics" -d 'Print the daemon\'s metrics once, for Prometheus'
complete -c pghot -n "__fish_pghot_needs_command" -f -a "top" -d 'Watch what the daemon does, live'
complete -c pghot -n "__fish_pghot_needs_command" -f -a "explain" -d 'Explain why a page moved or stayed'
complete -c pghot -n "__fish_pghot_needs_command" -f -a "hint" -d 'Hint that a process will use some of its memory'
complete -c pghot -n "__fish_pghot_needs_command" -f -a "set" -d 'Change a tunable of the running daemon'
complete -c pghot -n "__fish_pghot_needs_command" -f -a "reload" -d 'Have the daemon read its config file again'
complete -c pghot -n "__fish_pghot_needs_command" -f -a "doctor" -d 'Check what this kernel and machine offer, and what would fight with pghot'
complete -c pghot -n "__fish_pghot_needs_command" -f -a "restore" -d 'Put back the kernel settings that a killed daemon left changed'
complete -c pghot -n "__fish_pghot_needs_command" -f -a "record" -d 'Record which memory programs touch, over time, for `pghot sim replay` and `heatmap`'
complete -c pghot -n "__fish_pghot_needs_command" -f -a "heatmap" -d 'Draw which memory was touched when, and in which tier it was'
complete -c pghot -n "__fish_pghot_needs_command" -f -a "advise" -d 'Say how much fast memory recorded programs need, and whether pghot helps'
complete -c pghot -n "__fish_pghot_needs_command" -f -a "profile" -d 'Recorded profiles as a table for SQL, and back'
complete -c pghot -n "__fish_pghot_needs_command" -f -a "sim" -d 'Run pghot\'s engine, and models of others, on a modelled machine'
complete -c pghot -n "__fish_pghot_needs_command" -f -a "completions" -d 'Print the completions of a shell'
complete -c pghot -n "__fish_pghot_needs_command" -f -a "man" -d 'Print a manual page'
complete -c pghot -n "__fish_pghot_needs_command" -f -a "generate" -d 'Write man pages, shell completions, the reference of tunables or a config file'
complete -c pghot -n "__fish_pghot_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c pghot -n "__fish_pghot_using_subcommand run" -l config -d 'The config file, in TOML [default: /etc/pghot/pghot.toml, if it exists]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand run" -l mode -d 'How much a record remembers: `default` takes 1 byte a page, `precision` 4 bytes and knows the accessing node. [default: default]' -r
complete -c pghot -n "__fish_pghot_using_subcommand run" -l socket -d 'The control socket, on which `pghot status`, `explain` and `set` reach the daemon. [default: /run/pghot/pghot.sock]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand run" -l status-socket -d 'Where `pghot top`, `status` and `explain --last` reach the daemon without root: the members of the group `pghot` may connect, if there is such a group. It tells the status and the newest decisions, and changes nothing. [default: /run/pghot/status.sock]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand run" -l hint-socket -d 'Where applications hint at memory that they will use, while the source `app_hint` runs. Every user may connect to it. [default: /run/pghot/hint.sock]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand run" -l state-file -d 'Where the kernel settings that pghot changes are noted, so that they can be put back. [default: /run/pghot/state.json]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand run" -l user -d 'The user that the daemon becomes when root starts it; what only root may do, its keeper does. Where there is no user `pghot`, and no other is named, it goes on as root. [default: pghot]' -r
complete -c pghot -n "__fish_pghot_using_subcommand run" -l metrics-address -d 'Where metrics are served over HTTP, for Prometheus: an address and a port such as `127.0.0.1:9464` or `[::1]:9464`, or `off`. Everybody who reaches the port may read them. A TCP socket that the service manager passes is taken instead. [default: off]' -r
complete -c pghot -n "__fish_pghot_using_subcommand run" -l log-format -d 'How the log is written: `text` and `json` are lines on the standard error, `journald` are entries of the journal with fields such as PGHOT_EVENT. `auto` is `journald` if the standard error goes to the journal, else `text`. [default: auto]' -r
complete -c pghot -n "__fish_pghot_using_subcommand run" -l otlp-endpoint -d 'A collector of OpenTelemetry that gets a trace of each pass that sees ready pages: its address and port for OTLP over HTTP, such as `127.0.0.1:4318`, or `off`. What it does not take is dropped. [default: off]' -r
complete -c pghot -n "__fish_pghot_using_subcommand run" -l record-file -d 'Where access profiles are recorded all the time, or `off`: this is the newest, and those before it have `.1`, `.2` and so on behind the name. It takes half a percent of one CPU, and the memory of one profile. The service may write in /var/lib/pghot. [default: off]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand run" -l record-seconds -d 'How long each of these profiles lasts, 1 to 604800 s. [default: 3600]' -r
complete -c pghot -n "__fish_pghot_using_subcommand run" -l record-keep -d 'How many of them are kept, 1 to 100000. [default: 24]' -r
complete -c pghot -n "__fish_pghot_using_subcommand run" -l record-day-max-mb -d 'How much may be recorded in a day, 1 to 1000000 MB: after a look at much memory the next one comes later. 50 is for 64 GiB. [default: 50]' -r
complete -c pghot -n "__fish_pghot_using_subcommand run" -l freq-threshold -d 'Accesses within the window that make a page ready for promotion [default 2, 1 to 3; in precision mode default 2, 1 to 7]' -r
complete -c pghot -n "__fish_pghot_using_subcommand run" -l freq-window-ms -d 'The window in which accesses are counted, and the age beyond which a ready page counts as cold [default 3000, 1000 to 3968; in precision mode default 5000, 1000 to 16383]' -r
complete -c pghot -n "__fish_pghot_using_subcommand run" -l target-nid -d 'The top-tier node that hot pages go to, or nearest: from each lower-tier node to the top-tier node that is nearest to it and has room for what waits; if none has, to the one with most room [default nearest, 0 to 1023]' -r -f -a "nearest\t''"
complete -c pghot -n "__fish_pghot_using_subcommand run" -l kmigrated-sleep-ms -d 'From the start of one pass over a lower-tier node to the next [default 100, 50 to 1000]' -r
complete -c pghot -n "__fish_pghot_using_subcommand run" -l kmigrated-batch-nr -d 'Base pages per move_pages call [default 2048, 64 to 4096]' -r
complete -c pghot -n "__fish_pghot_using_subcommand run" -l promote-rate-limit-MBps -d 'Promotion per target node [default 1024, 0 to 65536]' -r
complete -c pghot -n "__fish_pghot_using_subcommand run" -l demote-rate-limit-MBps -d 'How much pghot itself may demote, to make room in a full top tier for pages that are clearly hotter [default 1024, 0 to 65536]' -r
complete -c pghot -n "__fish_pghot_using_subcommand run" -l quick-fault-ms -d 'A hint fault makes its page ready if it comes within this time of the kernel\'s mark: a page that is touched so soon is touched often [default 125, 0 to 60000]' -r
complete -c pghot -n "__fish_pghot_using_subcommand run" -l enabled-sources -d 'The hotness sources that report: their names with commas between, `default`, `none`, or the sum of their bits: hint_fault 0x1, hw_sample 0x2, pgtscan 0x4, page_cache 0x8, mglru 0x10, app_hint 0x20 [default hint_fault,pgtscan,page_cache]' -r -f -a "hint_fault\t''
hw_sample\t''
pgtscan\t''
page_cache\t''
mglru\t''
app_hint\t''
default\t''
none\t''"
complete -c pghot -n "__fish_pghot_using_subcommand run" -l scan-stall-max-ms -d 'The longest that pgtscan may hold a process\'s mmap lock for writing, while which the process can map nothing new [default 10, 1 to 1000]' -r
complete -c pghot -n "__fish_pghot_using_subcommand run" -l scan-cpu-max-percent -d 'The CPU time that pgtscan may take, in percent of one CPU; what it does not take is saved up for 10 s [default 5, 1 to 100]' -r
complete -c pghot -n "__fish_pghot_using_subcommand run" -l dry-run -d 'Observe and decide, but move nothing'
complete -c pghot -n "__fish_pghot_using_subcommand run" -l wait-for-lower-tier -d 'Where there is no lower tier yet, wait until its memory comes online'
complete -c pghot -n "__fish_pghot_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pghot -n "__fish_pghot_using_subcommand status" -l by -d 'Show whose memory is in which tier and whose pages moved instead' -r -f -a "cgroup\t''
process\t''"
complete -c pghot -n "__fish_pghot_using_subcommand status" -l html -d 'Write one page that works offline' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand status" -l config -d 'The config file, in TOML [default: /etc/pghot/pghot.toml, if it exists]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand status" -l socket -d 'The control socket, on which `pghot status`, `explain` and `set` reach the daemon. [default: /run/pghot/pghot.sock]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand status" -l status-socket -d 'Where `pghot top`, `status` and `explain --last` reach the daemon without root: the members of the group `pghot` may connect, if there is such a group. It tells the status and the newest decisions, and changes nothing. [default: /run/pghot/status.sock]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand status" -l json -d 'Print JSON'
complete -c pghot -n "__fish_pghot_using_subcommand status" -s h -l help -d 'Print help'
complete -c pghot -n "__fish_pghot_using_subcommand metrics" -l config -d 'The config file, in TOML [default: /etc/pghot/pghot.toml, if it exists]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand metrics" -l socket -d 'The control socket, on which `pghot status`, `explain` and `set` reach the daemon. [default: /run/pghot/pghot.sock]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand metrics" -l status-socket -d 'Where `pghot top`, `status` and `explain --last` reach the daemon without root: the members of the group `pghot` may connect, if there is such a group. It tells the status and the newest decisions, and changes nothing. [default: /run/pghot/status.sock]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand metrics" -l openmetrics -d 'Print OpenMetrics 1.0 instead of Prometheus\'s older text format'
complete -c pghot -n "__fish_pghot_using_subcommand metrics" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pghot -n "__fish_pghot_using_subcommand top" -l width -d 'Columns of the frame that --once prints' -r
complete -c pghot -n "__fish_pghot_using_subcommand top" -l config -d 'The config file, in TOML [default: /etc/pghot/pghot.toml, if it exists]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand top" -l socket -d 'The control socket, on which `pghot status`, `explain` and `set` reach the daemon. [default: /run/pghot/pghot.sock]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand top" -l status-socket -d 'Where `pghot top`, `status` and `explain --last` reach the daemon without root: the members of the group `pghot` may connect, if there is such a group. It tells the status and the newest decisions, and changes nothing. [default: /run/pghot/status.sock]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand top" -l once -d 'Print one frame as text and end; rates are those of one second'
complete -c pghot -n "__fish_pghot_using_subcommand top" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pghot -n "__fish_pghot_using_subcommand explain" -l last -d 'Show the newest N decisions instead' -r
complete -c pghot -n "__fish_pghot_using_subcommand explain" -l config -d 'The config file, in TOML [default: /etc/pghot/pghot.toml, if it exists]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand explain" -l socket -d 'The control socket, on which `pghot status`, `explain` and `set` reach the daemon. [default: /run/pghot/pghot.sock]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand explain" -l status-socket -d 'Where `pghot top`, `status` and `explain --last` reach the daemon without root: the members of the group `pghot` may connect, if there is such a group. It tells the status and the newest decisions, and changes nothing. [default: /run/pghot/status.sock]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand explain" -l json -d 'Print JSON'
complete -c pghot -n "__fish_pghot_using_subcommand explain" -s h -l help -d 'Print help'
complete -c pghot -n "__fish_pghot_using_subcommand hint" -l config -d 'The config file, in TOML [default: /etc/pghot/pghot.toml, if it exists]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand hint" -l hint-socket -d 'Where applications hint at memory that they will use, while the source `app_hint` runs. Every user may connect to it. [default: /run/pghot/hint.sock]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand hint" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pghot -n "__fish_pghot_using_subcommand set" -l config -d 'The config file, in TOML [default: /etc/pghot/pghot.toml, if it exists]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand set" -l socket -d 'The control socket, on which `pghot status`, `explain` and `set` reach the daemon. [default: /run/pghot/pghot.sock]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand set" -l save -d 'Write the value into the config file too, so that it outlives the daemon'
complete -c pghot -n "__fish_pghot_using_subcommand set" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pghot -n "__fish_pghot_using_subcommand reload" -l config -d 'The config file, in TOML [default: /etc/pghot/pghot.toml, if it exists]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand reload" -l socket -d 'The control socket, on which `pghot status`, `explain` and `set` reach the daemon. [default: /run/pghot/pghot.sock]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand reload" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pghot -n "__fish_pghot_using_subcommand doctor" -l json -d 'Print JSON'
complete -c pghot -n "__fish_pghot_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c pghot -n "__fish_pghot_using_subcommand restore" -l config -d 'The config file, in TOML [default: /etc/pghot/pghot.toml, if it exists]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand restore" -l state-file -d 'Where the kernel settings that pghot changes are noted, so that they can be put back. [default: /run/pghot/state.json]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand restore" -s h -l help -d 'Print help'
complete -c pghot -n "__fish_pghot_using_subcommand record" -l pid -d 'A process to record, again for more; all of 8 MiB or more without' -r
complete -c pghot -n "__fish_pghot_using_subcommand record" -l cgroup -d 'A control group to record with what is below it, again for more: a path below the mount such as /system.slice/postgres*; all without' -r
complete -c pghot -n "__fish_pghot_using_subcommand record" -l out -d 'Where the profile goes' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand record" -l keep -d 'Begin another profile when one is done, until Ctrl-C, and keep so many: FILE is the newest, FILE.1 the one before, and so on' -r
complete -c pghot -n "__fish_pghot_using_subcommand record" -l seconds -d 'How long to record' -r
complete -c pghot -n "__fish_pghot_using_subcommand record" -l interval-ms -d 'Time between two looks at a process' -r
complete -c pghot -n "__fish_pghot_using_subcommand record" -l stall-max-ms -d 'How long clearing may keep a process from changing its mappings; where that is too short, a way is taken that does not see shared pages' -r
complete -c pghot -n "__fish_pghot_using_subcommand record" -l cpu-max-percent -d 'Use at most so much of one CPU, 0.5 for example, on average: after an interval that took more nothing is looked at for a while, so there are fewer' -r
complete -c pghot -n "__fish_pghot_using_subcommand record" -l day-max-mb -d 'Record at most so many MB a day, 50 for example, on average: after an interval that took more nothing is looked at for a while' -r
complete -c pghot -n "__fish_pghot_using_subcommand record" -l config -d 'The config file, in TOML [default: /etc/pghot/pghot.toml, if it exists]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand record" -l socket -d 'The control socket, on which `pghot status`, `explain` and `set` reach the daemon. [default: /run/pghot/pghot.sock]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand record" -l no-names -d 'Leave out the names of programs and control groups'
complete -c pghot -n "__fish_pghot_using_subcommand record" -l pause-sources -d 'Switch those of the daemon\'s sources off for the recording that read the same accessed bits; without, it refuses to record beside them'
complete -c pghot -n "__fish_pghot_using_subcommand record" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pghot -n "__fish_pghot_using_subcommand heatmap" -l pid -d 'Record this process now instead, and keep nothing; needs root' -r
complete -c pghot -n "__fish_pghot_using_subcommand heatmap" -l program -d 'The program to show; without, the one that touched most' -r
complete -c pghot -n "__fish_pghot_using_subcommand heatmap" -l html -d 'Write one page that works offline, with the programs that touched most' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand heatmap" -l width -d 'Columns of text; those of the terminal without, or 80' -r
complete -c pghot -n "__fish_pghot_using_subcommand heatmap" -l rows -d 'Rows of memory at most; as many as the terminal has without, or 24' -r
complete -c pghot -n "__fish_pghot_using_subcommand heatmap" -l seconds -d 'How long to record' -r
complete -c pghot -n "__fish_pghot_using_subcommand heatmap" -l interval-ms -d 'Time between two looks at a process' -r
complete -c pghot -n "__fish_pghot_using_subcommand heatmap" -l stall-max-ms -d 'How long clearing may keep a process from changing its mappings; where that is too short, a way is taken that does not see shared pages' -r
complete -c pghot -n "__fish_pghot_using_subcommand heatmap" -l cpu-max-percent -d 'Use at most so much of one CPU, 0.5 for example, on average: after an interval that took more nothing is looked at for a while, so there are fewer' -r
complete -c pghot -n "__fish_pghot_using_subcommand heatmap" -l day-max-mb -d 'Record at most so many MB a day, 50 for example, on average: after an interval that took more nothing is looked at for a while' -r
complete -c pghot -n "__fish_pghot_using_subcommand heatmap" -l config -d 'The config file, in TOML [default: /etc/pghot/pghot.toml, if it exists]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand heatmap" -l socket -d 'The control socket, on which `pghot status`, `explain` and `set` reach the daemon. [default: /run/pghot/pghot.sock]' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand heatmap" -l json -d 'Print JSON'
complete -c pghot -n "__fish_pghot_using_subcommand heatmap" -l pause-sources -d 'Switch those of the daemon\'s sources off for the recording that read the same accessed bits; without, it refuses to record beside them'
complete -c pghot -n "__fish_pghot_using_subcommand heatmap" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pghot -n "__fish_pghot_using_subcommand advise" -l slowdown -d 'The slowdown that is accepted, against everything in the top tier' -r
complete -c pghot -n "__fish_pghot_using_subcommand advise" -l machine -d 'A scenario whose latencies, kernel and costs are taken for profiles' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand advise" -l misses -d 'Accesses that miss all caches in a second of CPU time, for profiles (`perf stat -e cache-misses` tells)' -r
complete -c pghot -n "__fish_pghot_using_subcommand advise" -l seeds -d 'Runs with different seeds, for the interval' -r
complete -c pghot -n "__fish_pghot_using_subcommand advise" -l out -d 'Where advise.html goes, and finished runs, so that an interrupted command goes on' -r -f -a "(__fish_complete_directories)"
complete -c pghot -n "__fish_pghot_using_subcommand advise" -l jobs -d 'Runs at the same time; as many as there are CPUs without' -r
complete -c pghot -n "__fish_pghot_using_subcommand advise" -l only-answer -d 'Do not try what would change the answer'
complete -c pghot -n "__fish_pghot_using_subcommand advise" -l json -d 'Print JSON'
complete -c pghot -n "__fish_pghot_using_subcommand advise" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pghot -n "__fish_pghot_using_subcommand profile; and not __fish_seen_subcommand_from export import show split help" -s h -l help -d 'Print help'
complete -c pghot -n "__fish_pghot_using_subcommand profile; and not __fish_seen_subcommand_from export import show split help" -f -a "export" -d 'Write profiles, of many hosts, into one table in Parquet'
complete -c pghot -n "__fish_pghot_using_subcommand profile; and not __fish_seen_subcommand_from export import show split help" -f -a "import" -d 'Write the profile of one host of a table, for `pghot sim` and `pghot heatmap`'
complete -c pghot -n "__fish_pghot_using_subcommand profile; and not __fish_seen_subcommand_from export import show split help" -f -a "show" -d 'Say how much memory each program has and touches'
complete -c pghot -n "__fish_pghot_using_subcommand profile; and not __fish_seen_subcommand_from export import show split help" -f -a "split" -d 'Write a profile of each control group, to size and replay it alone'
complete -c pghot -n "__fish_pghot_using_subcommand profile; and not __fish_seen_subcommand_from export import show split help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c pghot -n "__fish_pghot_using_subcommand profile; and __fish_seen_subcommand_from export" -l host -d 'The host\'s name in the table, of one profile; the file\'s without' -r
complete -c pghot -n "__fish_pghot_using_subcommand profile; and __fish_seen_subcommand_from export" -s o -l out -d 'Where the table goes' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand profile; and __fish_seen_subcommand_from export" -l no-names -d 'Leave out the names of programs and control groups'
complete -c pghot -n "__fish_pghot_using_subcommand profile; and __fish_seen_subcommand_from export" -s h -l help -d 'Print help'
complete -c pghot -n "__fish_pghot_using_subcommand profile; and __fish_seen_subcommand_from import" -l host -d 'Whose profile' -r
complete -c pghot -n "__fish_pghot_using_subcommand profile; and __fish_seen_subcommand_from import" -s o -l out -d 'Where the profile goes' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand profile; and __fish_seen_subcommand_from import" -s h -l help -d 'Print help'
complete -c pghot -n "__fish_pghot_using_subcommand profile; and __fish_seen_subcommand_from show" -l json -d 'Print JSON'
complete -c pghot -n "__fish_pghot_using_subcommand profile; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c pghot -n "__fish_pghot_using_subcommand profile; and __fish_seen_subcommand_from split" -s o -l out -d 'The folder where they go, in folders like those of the groups' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand profile; and __fish_seen_subcommand_from split" -s h -l help -d 'Print help'
complete -c pghot -n "__fish_pghot_using_subcommand profile; and __fish_seen_subcommand_from help" -f -a "export" -d 'Write profiles, of many hosts, into one table in Parquet'
complete -c pghot -n "__fish_pghot_using_subcommand profile; and __fish_seen_subcommand_from help" -f -a "import" -d 'Write the profile of one host of a table, for `pghot sim` and `pghot heatmap`'
complete -c pghot -n "__fish_pghot_using_subcommand profile; and __fish_seen_subcommand_from help" -f -a "show" -d 'Say how much memory each program has and touches'
complete -c pghot -n "__fish_pghot_using_subcommand profile; and __fish_seen_subcommand_from help" -f -a "split" -d 'Write a profile of each control group, to size and replay it alone'
complete -c pghot -n "__fish_pghot_using_subcommand profile; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and not __fish_seen_subcommand_from run replay sweep merge tables chaos harm help" -s h -l help -d 'Print help'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and not __fish_seen_subcommand_from run replay sweep merge tables chaos harm help" -f -a "run" -d 'Run a scenario under several systems and compare them'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and not __fish_seen_subcommand_from run replay sweep merge tables chaos harm help" -f -a "replay" -d 'Replay a recorded profile under several systems and compare them'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and not __fish_seen_subcommand_from run replay sweep merge tables chaos harm help" -f -a "sweep" -d 'Vary the size of the top tier, and settings: how much DRAM can be dropped?'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and not __fish_seen_subcommand_from run replay sweep merge tables chaos harm help" -f -a "merge" -d 'Put the shards of a sweep together: the files that one run would have written'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and not __fish_seen_subcommand_from run replay sweep merge tables chaos harm help" -f -a "tables" -d 'Show the published tables, each cell beside what the model says'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and not __fish_seen_subcommand_from run replay sweep merge tables chaos harm help" -f -a "chaos" -d 'Try the engine on random machines on which much goes wrong'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and not __fish_seen_subcommand_from run replay sweep merge tables chaos harm help" -f -a "harm" -d 'Compare pghot\'s defaults with doing nothing on random machines and workloads'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and not __fish_seen_subcommand_from run replay sweep merge tables chaos harm help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from run" -l mode -d 'Make accesses one by one, or many at once; the scenario decides if left out' -r -f -a "exact\t''
statistical\t''"
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from run" -l thin -d 'Model a part of a large machine, each page of which stands for N' -r
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from run" -l systems -d 'Systems to compare, with commas' -r -f -a "none\t'No balancing; with demotion'
pghot\t'pghot with its tunables; the engine of the daemon'
numab2\t'The stock kernel with numa_balancing=2 and demotion'
fault_count\t'numa_balancing=2 that counts faults, not time; the 2024 proposal'
proposal\t'pghot as proposed to the kernel, with its ageing and its order'
damon\t'DAMON\'s migrate_hot and migrate_cold, as its mtier sample sets them up'"
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from run" -l set -d 'A setting of a system, as pghot.freq_threshold=1' -r
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from run" -l seed -d 'Another seed than the scenario\'s' -r
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from run" -l json -d 'Print JSON'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from run" -s h -l help -d 'Print help'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from replay" -l machine -d 'A scenario whose machine is taken' -r -F
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from replay" -l top-mib -d 'Size of the top tier; half of the recorded memory if left out' -r
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from replay" -l misses -d 'Accesses that miss all caches in a second of CPU time, for profiles (`perf stat -e cache-misses` tells)' -r
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from replay" -l systems -d 'Systems to compare, with commas' -r -f -a "none\t'No balancing; with demotion'
pghot\t'pghot with its tunables; the engine of the daemon'
numab2\t'The stock kernel with numa_balancing=2 and demotion'
fault_count\t'numa_balancing=2 that counts faults, not time; the 2024 proposal'
proposal\t'pghot as proposed to the kernel, with its ageing and its order'
damon\t'DAMON\'s migrate_hot and migrate_cold, as its mtier sample sets them up'"
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from replay" -l set -d 'A setting of a system, as pghot.freq_threshold=1' -r
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from replay" -l seed -d 'Another seed than the scenario\'s' -r
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from replay" -l json -d 'Print JSON'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from replay" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l systems -d 'Systems to compare, with commas' -r -f -a "none\t'No balancing; with demotion'
pghot\t'pghot with its tunables; the engine of the daemon'
numab2\t'The stock kernel with numa_balancing=2 and demotion'
fault_count\t'numa_balancing=2 that counts faults, not time; the 2024 proposal'
proposal\t'pghot as proposed to the kernel, with its ageing and its order'
damon\t'DAMON\'s migrate_hot and migrate_cold, as its mtier sample sets them up'"
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l vary -d 'Values of a system\'s setting, as pghot.freq_threshold=1,2; every combination is run' -r
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l top -d 'Sizes of the top tier, in percent of the scenario\'s; the rest becomes lower tier' -r
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l seeds -d 'Runs of each' -r
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l slowdown -d 'The slowdown that is still accepted, for the answer' -r
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l out -d 'Where sweep.csv, sweep.html and sweep.parquet go' -r -f -a "(__fish_complete_directories)"
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l shard -d 'Run part I of N, into sweep-I-of-N.parquet; `pghot sim merge` makes of all parts what one run gives' -r
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l jobs -d 'Runs at the same time; as many as there are CPUs without' -r
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from sweep" -l misses -d 'Accesses that miss all caches in a second of CPU time, for profiles (`perf stat -e cache-misses` tells)' -r
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from sweep" -s h -l help -d 'Print help'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from merge" -l slowdown -d 'The slowdown that is still accepted, for the answer' -r
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from merge" -l out -d 'Where sweep.csv, sweep.html and sweep.parquet go' -r -f -a "(__fish_complete_directories)"
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from merge" -s h -l help -d 'Print help'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from tables" -l json -d 'Print JSON'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from tables" -s h -l help -d 'Print help'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from chaos" -l runs -d 'How many runs, with seeds one after the other' -r
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from chaos" -s h -l help -d 'Print help'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from harm" -l runs -d 'How many runs, with seeds one after the other' -r
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from harm" -s h -l help -d 'Print help'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "run" -d 'Run a scenario under several systems and compare them'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "replay" -d 'Replay a recorded profile under several systems and compare them'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "sweep" -d 'Vary the size of the top tier, and settings: how much DRAM can be dropped?'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "merge" -d 'Put the shards of a sweep together: the files that one run would have written'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "tables" -d 'Show the published tables, each cell beside what the model says'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "chaos" -d 'Try the engine on random machines on which much goes wrong'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "harm" -d 'Compare pghot\'s defaults with doing nothing on random machines and workloads'
complete -c pghot -n "__fish_pghot_using_subcommand sim; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c pghot -n "__fish_pghot_using_subcommand completions" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pghot -n "__fish_pghot_using_subcommand man" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c pghot -n "__fish_pghot_using_subcommand generate" -s h -l help -d 'Print help'
complete -c pghot -n "__fish_pghot_using_subcommand help; and not __fish_seen_subcommand_from run status metrics top explain hint set reload doctor restore record heatmap advise profile sim completions man generate help" -f -a "run" -d 'Run the daemon in the foreground until a signal ends it'
complete -c pghot -n "__fish_pghot_using_subcommand help; and not __fish_seen_subcommand_from run status metrics top explain hint set reload doctor restore record heatmap advise profile sim completions man generate help" -f -a "status" -d 'Show what the daemon does, and why nothing moves if nothing does'
complete -c pghot -n "__fish_pghot_using_subcommand help; and not __fish_seen_subcommand_from run status metrics top explain hint set reload doctor restore record heatmap advise profile sim completions man generate help" -f -a "metrics" -d 'Print the daemon\'s metrics once, for Prometheus'
complete -c pghot -n "__fish_pghot_using_subcommand help; and not __fish_seen_subcommand_from run status metrics top explain hint set reload doctor restore record heatmap advise profile sim completions man generate help" -f -a "top" -d 'Watch what the daemon does, live'
complete -c pghot -n "__fish_pghot_using_subcommand help; and not __fish_seen_subcommand_from run status metrics top explain hint set reload doctor restore record heatmap advise profile sim completions man generate help" -f -a "explain" -d 'Explain why a page moved or stayed'
complete -c pghot -n "__fish_pghot_using_subcommand help; and not __fish_seen_subcommand_from run status metrics top explain hint set reload doctor restore record heatmap advise profile sim completions man generate help" -f -a "hint" -d 'Hint that a process will use some of its memory'
complete -c pghot -n "__fish_pghot_using_subcommand help; and not __fish_seen_subcommand_from run status metrics top explain hint set reload doctor restore record heatmap advise profile sim completions man generate help" -f -a "set" -d 'Change a tunable of the running daemon'
complete -c pghot -n "__fish_pghot_using_subcommand help; and not __fish_seen_subcommand_from run status metrics top explain hint set reload doctor restore record heatmap advise profile sim completions man generate help" -f -a "reload" -d 'Have the daemon read its config file again'
complete -c pghot -n "__fish_pghot_using_subcommand help; and not __fish_seen_subcommand_from run status metrics top explain hint set reload doctor restore record heatmap advise profile sim completions man generate help" -f -a "doctor" -d 'Check what this kernel and machine offer, and what would fight with pghot'
complete -c pghot -n "__fish_pghot_using_subcommand help; and not __fish_seen_subcommand_from run status metrics top explain hint set reload doctor restore record heatmap advise profile sim completions man generate help" -f -a "restore" -d 'Put back the kernel settings that a killed daemon left changed'
complete -c pghot -n "__fish_pghot_using_subcommand help; and not __fish_seen_subcommand_from run status metrics top explain hint set reload doctor restore record heatmap advise profile sim completions man generate help" -f -a "record" -d 'Record which memory programs touch, over time, for `pghot sim replay` and `heatmap`'
complete -c pghot -n "__fish_pghot_using_subcommand help; and not __fish_seen_subcommand_from run status metrics top explain hint set reload doctor restore record heatmap advise profile sim completions man generate help" -f -a "heatmap" -d 'Draw which memory was touched when, and in which tier it was'
complete -c pghot -n "__fish_pghot_using_subcommand help; and not __fish_seen_subcommand_from run status metrics top explain hint set reload doctor restore record heatmap advise profile sim completions man generate help" -f -a "advise" -d 'Say how much fast memory recorded programs need, and whether pghot helps'
complete -c pghot -n "__fish_pghot_using_subcommand help; and not __fish_seen_subcommand_from run status metrics top explain hint set reload doctor restore record heatmap advise profile sim completions man generate help" -f -a "profile" -d 'Recorded profiles as a table for SQL, and back'
complete -c pghot -n "__fish_pghot_using_subcommand help; and not __fish_seen_subcommand_from run status metrics top explain hint set reload doctor restore record heatmap advise profile sim completions man generate help" -f -a "sim" -d 'Run pghot\'s engine, and models of others, on a modelled machine'
complete -c pghot -n "__fish_pghot_using_subcommand help; and not __fish_seen_subcommand_from run status metrics top explain hint set reload doctor restore record heatmap advise profile sim completions man generate help" -f -a "completions" -d 'Print the completions of a shell'
complete -c pghot -n "__fish_pghot_using_subcommand help; and not __fish_seen_subcommand_from run status metrics top explain hint set reload doctor restore record heatmap advise profile sim completions man generate help" -f -a "man" -d 'Print a manual page'
complete -c pghot -n "__fish_pghot_using_subcommand help; and not __fish_seen_subcommand_from run status metrics top explain hint set reload doctor restore record heatmap advise profile sim completions man generate help" -f -a "generate" -d 'Write man pages, shell completions, the reference of tunables or a config file'
complete -c pghot -n "__fish_pghot_using_subcommand help; and not __fish_seen_subcommand_from run status metrics top explain hint set reload doctor restore record heatmap advise profile sim completions man generate help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c pghot -n "__fish_pghot_using_subcommand help; and __fish_seen_subcommand_from profile" -f -a "export" -d 'Write profiles, of many hosts, into one table in Parquet'
complete -c pghot -n "__fish_pghot_using_subcommand help; and __fish_seen_subcommand_from profile" -f -a "import" -d 'Write the profile of one host of a table, for `pghot sim` and `pghot heatmap`'
complete -c pghot -n "__fish_pghot_using_subcommand help; and __fish_seen_subcommand_from profile" -f -a "show" -d 'Say how much memory each program has and touches'
complete -c pghot -n "__fish_pghot_using_subcommand help; and __fish_seen_subcommand_from profile" -f -a "split" -d 'Write a profile of each control group, to size and replay it alone'
complete -c pghot -n "__fish_pghot_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "run" -d 'Run a scenario under several systems and compare them'
complete -c pghot -n "__fish_pghot_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "replay" -d 'Replay a recorded profile under several systems and compare them'
complete -c pghot -n "__fish_pghot_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "sweep" -d 'Vary the size of the top tier, and settings: how much DRAM can be dropped?'
complete -c pghot -n "__fish_pghot_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "merge" -d 'Put the shards of a sweep together: the files that one run would have written'
complete -c pghot -n "__fish_pghot_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "tables" -d 'Show the published tables, each cell beside what the model says'
complete -c pghot -n "__fish_pghot_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "chaos" -d 'Try the engine on random machines on which much goes wrong'
complete -c pghot -n "__fish_pghot_using_subcommand help; and __fish_seen_subcommand_from sim" -f -a "harm" -d 'Compare pghot\'s defaults with doing nothing on random machines and workloads'
