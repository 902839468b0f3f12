//! What a `compile` call collects: ports, and the constants that the EP is done with.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use ortolan_ep_abi::raw;

use super::{Refusal, space};
use crate::error::Result;
use crate::value::SpaceId;

/// Memory spaces that a part wants its inputs in and leaves its outputs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    pub inputs: Box<[SpaceId]>,
    pub outputs: Box<[SpaceId]>,
}

/// The host's side of a `compile` call.
pub(crate) struct Compiling<'a> {
    pub ports: RefCell<Ports>,
    /// Per constant of the program: whether the EP said that it is done with it.
    pub done: Box<[AtomicBool]>,
    /// Told of each constant when the EP is done with it; any thread.
    pub release: &'a (dyn Fn(u32) + Sync),
    /// Makes the bytes of a part.
    pub onnx: &'a dyn Fn(&raw::PartDesc) -> Result<Vec<u8>>,
    /// Keeps them until the call returns.
    pub bytes: RefCell<Vec<Vec<u8>>>,
}

impl Compiling<'_> {
    pub fn port(&self, direction: u32, index: u32, to: u32) -> Result<(), Refusal> {
        let shape_only = to == raw::PORT_SHAPE && direction == 0;
        if !shape_only && !space::known(to) {
            return Err(Refusal::fault(format!("port: there is no memory space {to}")));
        }
        let mut ports = self.ports.borrow_mut();
        let (side, name) = match direction {
            0 => (&mut ports.inputs, "input"),
            1 => (&mut ports.outputs, "output"),
            other => return Err(Refusal::fault(format!("port: direction {other} is neither 0 nor 1"))),
        };
        match side.get_mut(index as usize) {
            Some(port) => *port = SpaceId(to),
            None => return Err(Refusal::fault(format!("port: the part has no {name} {index}"))),
        }
        Ok(())
    }

    pub fn done_with(&self, constant: u32) -> Result<(), Refusal> {
        match self.done.get(constant as usize) {
            None => Err(Refusal::fault(format!("done_with: the program has no constant {constant}"))),
            Some(done) => {
                if !done.swap(true, Relaxed) {
                    (self.release)(constant);
                }
                Ok(())
            }
        }
    }
}
