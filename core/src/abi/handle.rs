//! Owned handles over a plugin's table: factory, EP and part. Each keeps the one above it alive, so that they are freed
//! in the reverse order of their making.

use std::any::Any;
use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, OnceLock};

use ortolan_ep_abi::raw::{self, EpV1, Kv, Str};

use super::copy::{Copying, copy};
use super::ctx::{Kind, Setup, call};
use super::out::Out;
use super::{Answers, Claims, Compiling, DeviceInfo, DeviceList, Ports, Refusal};
use crate::error::{Error, Result, codes};
use crate::pool;
use crate::value::{Buffer, Lender, SpaceId, Tensor};

/// A factory: one per process and library.
pub struct FactoryHandle {
    table: &'static EpV1,
    raw: *mut raw::Factory,
    name: Arc<str>,
    _lease: Option<Box<dyn Any + Send + Sync>>,
}

// SAFETY: the ABI lets a factory be used from any thread.
unsafe impl Send for FactoryHandle {}
// SAFETY: as above.
unsafe impl Sync for FactoryHandle {}

impl FactoryHandle {
    /// Makes the factory. `lease` is dropped after it and all that came from it.
    ///
    /// # Safety
    /// `table` is a complete table of a plugin with this ABI, whose library stays loaded.
    pub unsafe fn new(name: &str, table: &'static EpV1, lease: Option<Box<dyn Any + Send + Sync>>) -> Result<Self> {
        let out = Out::new();
        // SAFETY: the caller's promise; the out pointer is live.
        let make = |c| unsafe { (table.factory_new)(c, out.ptr()) };
        call(&Setup::plain(name, 1), Kind::Plain, codes::EP_FAILED, make)?;
        let raw = out.take("factory").map_err(|r| fault(name, r))?;
        Ok(FactoryHandle { table, raw, name: name.into(), _lease: lease })
    }

    /// The EP's name, from its manifest.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The plugin's table.
    pub fn table(&self) -> &'static EpV1 {
        self.table
    }

    /// Lists devices; the EP may start its driver now.
    pub fn devices(&self) -> Result<DeviceList> {
        let list = RefCell::new(DeviceList::default());
        // SAFETY: the factory is live.
        let ask = |c| unsafe { (self.table.devices)(self.raw, c) };
        call(&Setup::plain(&self.name, 1), Kind::Devices(&list), codes::EP_FAILED, ask)?;
        Ok(list.into_inner())
    }

    /// Makes an EP for one session on one device.
    pub fn create(self: &Arc<Self>, device: &DeviceInfo, options: &[(String, String)]) -> Result<EpHandle> {
        let kvs: Vec<Kv> = options.iter().map(|(k, v)| Kv { key: Str::new(k), value: Str::new(v) }).collect();
        let out = Out::new();
        let setup = Setup::plain(&self.name, pool::available());
        // SAFETY: the factory is live; options and out pointer live over the call.
        let make = |c| unsafe { (self.table.ep_new)(self.raw, c, device.ordinal, kvs.as_ptr(), kvs.len(), out.ptr()) };
        call(&setup, Kind::Plain, codes::EP_NEW_FAILED, make)?;
        let raw = out.take("EP").map_err(|r| fault(&self.name, r))?;
        Ok(EpHandle { factory: Arc::clone(self), raw, device: device.clone(), lost: OnceLock::new() })
    }

    /// Makes the EP let go of what it keeps for sessions to come; what is in use stays.
    pub fn trim(&self) {
        if let Some(trim) = self.table.factory_trim {
            // SAFETY: the factory is live.
            unsafe { trim(self.raw) }
        }
    }
}

impl Drop for FactoryHandle {
    fn drop(&mut self) {
        // SAFETY: made by `factory_new`, freed once, after all its EPs, which hold it.
        unsafe { (self.table.factory_free)(self.raw) }
    }
}

/// An EP of one session on one device.
pub struct EpHandle {
    factory: Arc<FactoryHandle>,
    raw: *mut raw::Ep,
    device: DeviceInfo,
    /// Why its device is gone.
    lost: OnceLock<String>,
}

// SAFETY: the ABI lets an EP be used from any thread.
unsafe impl Send for EpHandle {}
// SAFETY: as above.
unsafe impl Sync for EpHandle {}

impl EpHandle {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.factory.name
    }

    /// Its device.
    pub fn device(&self) -> &DeviceInfo {
        &self.device
    }

    /// Why its device is gone, if it is.
    pub fn lost(&self) -> Option<&str> {
        self.lost.get().map(String::as_str)
    }

    /// The same error; if it says that the device is gone, that is remembered, and the error names the device.
    pub(crate) fn noted(&self, error: Error) -> Error {
        if !error.is(codes::DEVICE_LOST) {
            return error;
        }
        let text = format!("its device '{}' is lost: {}", self.device.name, error.message());
        self.lost.get_or_init(|| text.clone());
        error.reworded(text)
    }

    /// An error if the device is gone.
    pub(crate) fn alive(&self) -> Result<()> {
        match self.lost.get() {
            Some(why) => Err(Error::new(codes::DEVICE_LOST, why).from_ep(self.name(), Some(raw::LOST))),
            None => Ok(()),
        }
    }

    pub(crate) fn table(&self) -> &'static EpV1 {
        self.factory.table
    }

    pub(crate) fn raw(&self) -> *mut raw::Ep {
        self.raw
    }

    /// Asks about the part's nodes.
    pub(crate) fn claim(&self, setup: &Setup<'_>, program: &raw::Program, part: &raw::PartDesc) -> Result<Answers> {
        // SAFETY: the host made the part; its list is live.
        let asked = unsafe { raw::slice(part.nodes, part.node_count as usize) };
        let claims = RefCell::new(Claims::new(asked));
        // SAFETY: the EP is live; program and part live over the call.
        let ask = |c| unsafe { (self.table().claim)(self.raw, c, program, part) };
        call(setup, Kind::Claim(&claims), codes::EP_FAILED, ask).map_err(|e| self.noted(e))?;
        Ok(claims.into_inner().finish())
    }

    /// Compiles a part. `keep` is what the part may point to for its life; see [`PartHandle::let_go`].
    pub(crate) fn compile(
        self: &Arc<Self>,
        setup: &Setup<'_>,
        (program, part): (&raw::Program, &raw::PartDesc),
        compiling: &Compiling<'_>,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<PartHandle> {
        let out = Out::new();
        // SAFETY: the EP is live; program, part and out pointer live over the call.
        let make = |c| unsafe { (self.table().compile)(self.raw, c, program, part, out.ptr()) };
        call(setup, Kind::Compile(compiling), codes::COMPILE_FAILED, make).map_err(|e| self.noted(e))?;
        let raw = out.take("part").map_err(|r| fault(self.name(), r))?;
        Ok(PartHandle { ep: Arc::clone(self), raw, ports: compiling.ports.borrow().clone(), keep: Some(keep) })
    }
}

impl Drop for EpHandle {
    fn drop(&mut self) {
        // SAFETY: made by `ep_new`, freed once, after all its parts, which hold it.
        unsafe { (self.table().ep_free)(self.raw) }
    }
}

/// A compiled part.
pub(crate) struct PartHandle {
    ep: Arc<EpHandle>,
    raw: *mut raw::Part,
    ports: Ports,
    keep: Option<Arc<dyn Any + Send + Sync>>,
}

// SAFETY: the ABI lets many threads run a part at once.
unsafe impl Send for PartHandle {}
// SAFETY: as above.
unsafe impl Sync for PartHandle {}

impl PartHandle {
    pub fn ep(&self) -> &Arc<EpHandle> {
        &self.ep
    }

    pub fn ports(&self) -> &Ports {
        &self.ports
    }

    /// The part is done with all constants: it points to nothing of the host's.
    pub fn let_go(&mut self) {
        self.keep = None;
    }

    /// Whether it may point to the program's constants.
    pub fn holds_constants(&self) -> bool {
        self.keep.is_some()
    }

    /// Runs the part. Until it has made the lane, the place for it is fenced.
    ///
    /// # Safety
    /// `call` is complete and of kind run; `lane` belongs to this part and to nobody else now.
    pub unsafe fn run(&self, lane: &mut *mut raw::Lane, call: *const raw::Call) -> Result<i32, Refusal> {
        let run = self.ep.table().run;
        if !lane.is_null() {
            // SAFETY: the part is live, and the caller's promise.
            return Ok(unsafe { run(self.raw, lane, call) });
        }
        let out = Out::new();
        // SAFETY: as above; the place is live.
        let status = unsafe { run(self.raw, out.ptr(), call) };
        let (made, intact) = out.look("lane");
        *lane = made;
        intact.map(|()| status)
    }

    /// # Safety
    /// `lane` was made by this part, and nobody uses it any more.
    pub unsafe fn free_lane(&self, lane: *mut raw::Lane) {
        // SAFETY: the caller's promise.
        unsafe { (self.ep.table().lane_free)(self.raw, lane) }
    }
}

impl Drop for PartHandle {
    fn drop(&mut self) {
        // SAFETY: made by `compile`, freed once, after all its lanes, which hold it.
        unsafe { (self.ep.table().part_free)(self.raw) }
    }
}

/// A broken rule as an error of the EP.
fn fault(ep: &str, refusal: Refusal) -> Error {
    Error::from(refusal).from_ep(ep, None)
}

/// The struct of a tensor as it crosses. It points into `tensor`.
pub(crate) fn raw_tensor(tensor: &Tensor) -> raw::Value {
    raw::Value {
        kind: raw::VALUE_TENSOR,
        dtype: tensor.dtype.number().unsigned_abs(),
        rank: u32::try_from(tensor.shape.len()).unwrap_or(u32::MAX),
        flags: 0,
        shape: tensor.shape.as_ptr(),
        data: tensor.buffer.ptr().wrapping_add(tensor.at),
        bytes: tensor.bytes as u64,
        space: tensor.space().0,
        item_count: 0,
        items: std::ptr::null(),
        buffer: Arc::as_ptr(&tensor.buffer).cast_mut().cast(),
    }
}

fn to_host(ep: &Arc<EpHandle>, tensor: &Tensor) -> Result<Tensor> {
    let mut make = |bytes| match Buffer::host(bytes) {
        Some(buffer) => Ok(Arc::new(buffer)),
        None => Err(Error::new(codes::OUT_OF_MEMORY, format!("the system has no {bytes} bytes left"))),
    };
    let mut all = copy(ep, &[tensor], SpaceId::HOST, &Copying::default(), &mut make)?;
    all.pop().ok_or_else(|| Error::new(codes::INTERNAL, "a copy of one value gave none"))
}

/// As the keeper of memory that a copy made.
impl Lender for Arc<EpHandle> {
    fn to_host(&self, tensor: &Tensor) -> Result<Tensor> {
        to_host(self, tensor)
    }
}

impl Lender for PartHandle {
    fn to_host(&self, tensor: &Tensor) -> Result<Tensor> {
        to_host(&self.ep, tensor)
    }
}

impl fmt::Debug for FactoryHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FactoryHandle({})", self.name)
    }
}

impl fmt::Debug for EpHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EpHandle({} on {})", self.name(), self.device.name)
    }
}

impl fmt::Debug for PartHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartHandle({})", self.ep.name())
    }
}
