use pghot_testbed::{Kernel, Machine, Spec, Vm};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let machine = Machine::load(&a[2]).unwrap();
    let kernel = Kernel::find(&a[1]).unwrap();
    let mut bins = pghot_testbed::guest_binaries().unwrap();
    for b in [
        "/bin/sh",
        "/bin/cat",
        "/bin/sleep",
        "/bin/grep",
        "/usr/bin/awk",
    ] {
        bins.push(b.into());
    }
    let mut spec = Spec::new(&machine, &kernel, &bins);
    spec.limit = std::time::Duration::from_secs(500);
    let vm = Vm::boot(&spec).unwrap();
    vm.set_limit(std::time::Duration::from_secs(480));
    let script = std::fs::read_to_string(&a[3]).unwrap();
    let out = vm
        .spawn(&["sh", "-c", &script])
        .unwrap()
        .wait(std::time::Duration::from_secs(450))
        .unwrap();
    println!("{}\n{}", out.stdout, out.stderr);
}
