//! The core alone as a C library: one function that walks the whole road, so that the linker keeps what a program that
//! embeds the core needs. It is weighed, never run.

use ortolan::host::PluginHost;
use ortolan::{Session, SessionEp, TensorView};
use std::ffi::{CStr, c_char};

/// Finds EPs, loads the model, runs it with four numbers on the EP of that name and prints the outputs and where each node ran. 0 is success.
///
/// # Safety
/// `model`, a path, and `ep`, a name, end in a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ortolan_core_alone(model: *const c_char, ep: *const c_char) -> i32 {
    // SAFETY: by this function's contract.
    let model = unsafe { CStr::from_ptr(model) };
    // SAFETY: as above.
    let ep = unsafe { CStr::from_ptr(ep) };
    std::panic::catch_unwind(|| walk(&model.to_string_lossy(), &ep.to_string_lossy()))
        .map_or(3, |done| done.map_or_else(told, |()| 0))
}

fn told(error: Box<dyn std::error::Error>) -> i32 {
    eprintln!("{error}");
    2
}

fn walk(model: &str, ep: &str) -> Result<(), Box<dyn std::error::Error>> {
    let host = PluginHost::builder().build();
    for candidate in &host.discover().found {
        eprintln!("{candidate:?}");
    }
    let eps = [host.load(ep)?].map(|ep| SessionEp::from(&*ep));
    eprintln!("{:?}", Session::builder().eps(eps.clone()).survey(model)?);
    let session = Session::builder().eps(eps).threads(2).build(model)?;
    let data = [0.0f32; 4];
    let view = TensorView::new(&[4], &data)?;
    println!("{:?}", session.run([("x", view)])?);
    let mut binding = session.bind()?;
    binding.input("x", ortolan::Tensor::new(&[4], data.to_vec())?)?;
    binding.run()?;
    eprintln!("{:?}", session.report());
    Ok(())
}
