//! ONNX models as typed graphs: messages, schemas, version steps, inference.

pub mod schema;
