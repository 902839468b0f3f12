//! Messages → [`Graph`]: names become ids, data becomes constants, functions are expanded, nodes are sorted.
//!
//! The result still holds every node in the form of the file, with no types but those of the model's
//! inputs and constants; [`crate::walk`] does the rest.

mod attr;
mod external;
mod function;
mod graph;
mod scope;
mod sort;
mod tensor;
mod types;

use std::path::Path;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use crate::error::{Code, Error, Result, Warning};
use crate::ir::{Graph, Map, ModelInfo, Name, Opset, ValueId};
use crate::load::LoadOptions;
use crate::proto::{self, FunctionProto, ModelProto, OperatorSetIdProto, TypeProto};
use crate::schema;
use scope::Scopes;
use tensor::Constants;
pub(crate) use types::shapeless;

/// A graph in the file's forms, with what the file says of the types of its values.
pub(crate) struct Built {
    pub(crate) graph: Graph,
    pub(crate) declared: Vec<(ValueId, TypeProto)>,
}

/// Builds the graph of a model that lies in `map`.
pub(crate) fn build(map: Arc<Map>, folder: Option<&Path>, options: &LoadOptions) -> Result<Built> {
    let size = map.as_slice().len() as u64;
    let model = proto::decode(&map)?;
    let mut builder = Builder {
        graph: Graph { schemas: options.schemas.clone(), ..Graph::default() },
        constants: Constants::new(map, folder, options.mmap),
        declared: Vec::new(),
        names: Names::default(),
        scopes: Scopes::default(),
        functions: HashMap::new(),
        calls: Vec::new(),
        nodes_left: proto::budget(size) / NODE_COST,
        dims: types::DimNames::new(options),
    };
    builder.model(model)?;
    let Builder { mut graph, constants, declared, .. } = builder;
    graph.constants = constants.all;
    Ok(Built { graph, declared })
}

/// From this IR version on models say which opsets they use.
const IMPORTS_SINCE_IR: i64 = 3;

/// Memory of a node, its values and what inference adds, when a function's body is expanded.
const NODE_COST: u64 = 1024;

struct Builder {
    graph: Graph,
    constants: Constants,
    declared: Vec<(ValueId, TypeProto)>,
    names: Names,
    scopes: Scopes,
    functions: HashMap<FunctionKey, Arc<FunctionProto>>,
    /// The functions that are being expanded, outermost first.
    calls: Vec<function::Call>,
    nodes_left: u64,
    dims: types::DimNames,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct FunctionKey {
    domain: String,
    name: String,
    overload: String,
}

impl Builder {
    fn model(&mut self, model: ModelProto) -> Result<()> {
        let Some(main) = model.graph else {
            return Err(Error::new(Code::MissingGraph, "the model holds no graph"));
        };
        if model.ir_version > proto::IR_VERSION {
            self.warn(
                "model",
                format!(
                    "its IR version {} is newer than {}, the newest that is known",
                    model.ir_version,
                    proto::IR_VERSION
                ),
            );
        }
        self.graph.info = ModelInfo {
            ir_version: model.ir_version,
            producer_name: model.producer_name,
            producer_version: model.producer_version,
            domain: model.domain,
            model_version: model.model_version,
            doc: model.doc_string,
            graph_name: main.name.clone(),
            metadata: model.metadata_props.into_iter().map(|e| (e.key, e.value)).collect(),
        };
        self.graph.opsets = self.opsets(&model.opset_import, "the model")?;
        if self.graph.opsets.is_empty() {
            // Before IR version 3 files had no imports: everything was version 1.
            if model.ir_version >= IMPORTS_SINCE_IR {
                return Err(Error::new(
                    Code::Opset,
                    "the model imports no opset: it is cut off or was written wrongly",
                ));
            }
            self.graph.opsets.push(Opset { domain: self.names.get(""), version: 1 });
        }
        for f in model.functions {
            self.function(f)?;
        }
        self.main_graph(main)?;
        self.dims.check_all_used()
    }

    fn function(&mut self, f: FunctionProto) -> Result<()> {
        let key = FunctionKey {
            domain: schema::canonical_domain(&f.domain).to_owned(),
            name: f.name.clone(),
            overload: f.overload.clone(),
        };
        let place = format!("function '{}'", key.name);
        match self.functions.insert(key, Arc::new(f)) {
            Some(_) => {
                Err(Error::new(Code::DuplicateName, "two functions have this domain, name and overload").within(place))
            }
            None => Ok(()),
        }
    }

    /// Checks imports; of a domain that is imported twice both have to say the same.
    fn opsets(&mut self, imports: &[OperatorSetIdProto], who: &str) -> Result<Vec<Opset>> {
        let mut opsets: Vec<Opset> = Vec::new();
        for import in imports {
            let domain = schema::canonical_domain(&import.domain);
            let fail = |message| Err(Error::new(Code::Opset, message));
            let version = match u32::try_from(import.version) {
                Ok(v) if v >= 1 => v,
                _ => return fail(format!("{who} imports version {} of {}", import.version, domain_name(domain))),
            };
            if let Some(newest) = schema::newest(domain).filter(|n| (*n) < version) {
                return fail(format!(
                    "{who} imports version {version} of {}, but the newest that this build knows is {newest}",
                    domain_name(domain)
                ));
            }
            match opsets.iter().find(|o| &*o.domain == domain) {
                Some(known) if known.version != version => {
                    return fail(format!(
                        "{who} imports versions {} and {version} of {}",
                        known.version,
                        domain_name(domain)
                    ));
                }
                Some(_) => {}
                None => opsets.push(Opset { domain: self.names.get(domain), version }),
            }
        }
        Ok(opsets)
    }

    /// Version of a domain where the node at hand stands; functions without an import use the model's.
    fn opset_here(&self, domain: &str) -> Option<u32> {
        let of = |list: &[Opset]| list.iter().find(|o| &*o.domain == domain).map(|o| o.version);
        self.calls.last().and_then(|c| of(&c.opsets)).or_else(|| of(&self.graph.opsets))
    }

    fn warn(&mut self, place: impl Into<String>, message: String) {
        let warning = Warning { place: place.into(), message };
        tracing::warn!(target: "ortolan_graph", "{warning}");
        self.graph.warnings.push(warning);
    }
}

/// How messages name a domain.
pub(crate) fn domain_name(domain: &str) -> &str {
    if domain.is_empty() { "ai.onnx" } else { domain }
}

/// Shared texts: operators, domains and attributes repeat.
#[derive(Default)]
struct Names(HashSet<Name>);

impl Names {
    fn get(&mut self, text: &str) -> Name {
        self.0.get_or_insert_with(text, |text| text.into()).clone()
    }
}
