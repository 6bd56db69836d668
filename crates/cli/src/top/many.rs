//! For tests: what watching costs where there are many control groups.

use std::fs;
use std::thread::sleep;
use std::time::Instant;

use pghot_daemon::config::load;
use pghot_linux::{SysRoot, thread_cpu};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::draw::{picture, plain};
use super::model::Model;
use super::testing::{LOOK, status_at};
use super::view::View;
use super::watch::{PERIOD, Watcher};

const GROUPS: u32 = 2000;

fn machine() -> (tempfile::TempDir, SysRoot) {
    let dir = tempfile::tempdir().unwrap();
    let root = SysRoot::under(dir.path());
    let mount = root.sys.join("fs/cgroup");
    for number in 0..GROUPS {
        let slice = format!("kubepods.slice/pod-{:04}.slice", number / 4);
        let folder = mount.join(slice).join(format!("container-{number}.scope"));
        fs::create_dir_all(&folder).unwrap();
        let bytes = u64::from(number + 1) << 20;
        let stat = format!("anon N0={bytes} N2=8192\nfile N0=4096 N2=0\nslab N0=1 N2=1\n");
        fs::write(folder.join("memory.numa_stat"), stat).unwrap();
        fs::write(folder.join("memory.max"), "max\n").unwrap();
    }
    fs::write(mount.join("cgroup.controllers"), "memory\n").unwrap();
    (dir, root)
}

#[test]
fn many_cgroups_take_less_than_half_a_percent() {
    let (dir, root) = machine();
    let config = dir.path().join("pghot.toml");
    let nowhere = format!("socket = {:?}\n", dir.path().join("sock"));
    fs::write(&config, nowhere).unwrap();
    let options = load(Some(&config), Vec::new()).unwrap();
    let mut watcher = Watcher::new(options, root);
    let mut terminal = Terminal::new(TestBackend::new(200, 50)).unwrap();
    let (mut model, view) = (Model::default(), View::default());
    let mut look = |second: u32| {
        let mut seen = watcher.look();
        seen.status = Ok(status_at(second.into()));
        model.take(seen);
        let drawn = terminal.draw(|frame| picture(&model, &view, LOOK, frame.buffer_mut()));
        plain(drawn.unwrap().buffer)
    };
    let drawn = look(1);
    assert!(
        drawn.contains(&format!("decisions   {GROUPS}\n")),
        "{drawn}"
    );
    let mut share = |window: u32| {
        let (cpu_before, before) = (thread_cpu(), Instant::now());
        for second in 1..=6 {
            let next = before + second * PERIOD;
            sleep(next.saturating_duration_since(Instant::now()));
            look(6 * window + second + 1);
        }
        let share = (thread_cpu() - cpu_before).div_duration_f64(before.elapsed());
        println!("{GROUPS} cgroups take {:.3} % of a CPU", 100.0 * share);
        share
    };
    // Whoever runs beside it takes its caches away: one quiet window says what it needs itself.
    assert!((0..3).any(|window| share(window) < 0.005), "see above");
}
