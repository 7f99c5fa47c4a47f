//! JSON Schemas of the types of bodies, as named components.

use schemars::generate::SchemaSettings;
use schemars::transform::{RecursiveTransform, RemoveRefSiblings, ReplaceBoolSchemas, Transform};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

/// The folder of the components.
const FOLDER: &str = "#/components/schemas/";

/// Returns the schema of a type, which is a reference unless it is short.
pub(super) type SchemaOf = fn(&mut Schemas) -> Value;

/// Collects the schemas of a document. A type has one schema for what the server reads, with defaults, and another one
/// for what it writes. Most are equal.
pub(in crate::http) struct Schemas {
    read: SchemaGenerator,
    written: SchemaGenerator,
    /// Components that are not the schema of one type.
    own: Map<String, Value>,
}

/// The components, and the names of those that have another name in requests.
pub(super) struct Components {
    pub(super) schemas: Map<String, Value>,
    inputs: Vec<String>,
}

impl Schemas {
    /// Creates an empty collection.
    pub(super) fn new() -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = FOLDER.trim_start_matches('#').trim_end_matches('/').into();
            settings.meta_schema = None;
        });
        Self {
            read: settings.clone().for_deserialize().into_generator(),
            written: settings.for_serialize().into_generator(),
            own: Map::new(),
        }
    }

    /// Returns the schema of a type in requests.
    pub(super) fn read<T: JsonSchema>(&mut self) -> Value {
        plain(self.read.subschema_for::<T>())
    }

    /// Returns the schema of a type in responses.
    pub(super) fn written<T: JsonSchema>(&mut self) -> Value {
        as_written(self.written.subschema_for::<T>())
    }

    /// Returns the schema of a type in responses, and no reference to it.
    pub(super) fn inlined<T: JsonSchema>(&mut self) -> Value {
        as_written(T::json_schema(&mut self.written))
    }

    /// Adds a component, and returns the reference to it.
    pub(super) fn add(&mut self, name: &str, schema: Value) -> Value {
        self.own.insert(name.to_owned(), schema);
        reference(name)
    }

    /// Returns the components. A type whose two schemas differ has two components; the name of the one for requests ends
    /// with `Input`.
    pub(super) fn finish(mut self) -> Components {
        let mut schemas = definitions(&mut self.written, as_written);
        let read = definitions(&mut self.read, plain);
        let mut inputs: Vec<String> = Vec::new();
        // Until nothing changes: a component also has two schemas if one of its parts has.
        loop {
            let differs = |name: &String, schema: &Value| {
                schemas.get(name).is_some_and(|other| other != schema || refers_to(schema, &inputs))
            };
            let found = read.iter().filter(|(name, schema)| !inputs.contains(name) && differs(name, schema));
            let found: Vec<_> = found.map(|(name, _)| name.clone()).collect();
            if found.is_empty() {
                break;
            }
            inputs.extend(found);
        }
        for (name, mut schema) in read {
            rename(&mut schema, &inputs);
            let name = if inputs.contains(&name) { input(&name) } else { name };
            schemas.insert(name, schema);
        }
        schemas.extend(self.own);
        Components { schemas, inputs }
    }
}

impl Components {
    /// Changes the references in a part of a request to the components for requests.
    pub(super) fn use_inputs(&self, part: &mut Value) {
        rename(part, &self.inputs);
    }
}

/// Returns the components that a generator has collected.
fn definitions(generator: &mut SchemaGenerator, form: fn(Schema) -> Value) -> Map<String, Value> {
    let definitions = generator.take_definitions(true).into_iter();
    definitions.filter_map(|(name, schema)| Some((name, form(schema.try_into().ok()?)))).collect()
}

/// Returns a reference to a component.
pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("{FOLDER}{name}") })
}

/// Writes a schema as tools for OpenAPI expect it: every schema is an object, a reference has no siblings, and only
/// formats of text are named.
fn plain(mut schema: Schema) -> Value {
    let tidy = |schema: &mut Schema| {
        let is_of_text = |format: &Value| format.as_str().is_some_and(|format| format.starts_with("date"));
        if schema.get("format").is_some_and(|format| !is_of_text(format)) {
            schema.remove("format");
        }
        // Generators of types take a field with a default for a field that is always present.
        schema.remove("default");
        if let Some(Value::String(text)) = schema.get_mut("description") {
            *text = text.replace('\n', " ");
        }
    };
    RecursiveTransform(tidy).transform(&mut schema);
    let mut objects = ReplaceBoolSchemas::default();
    objects.skip_additional_properties = true;
    objects.transform(&mut schema);
    RemoveRefSiblings::default().transform(&mut schema);
    schema.into()
}

/// As [`plain`], for what the server writes: an optional field is absent rather than `null`.
fn as_written(mut schema: Schema) -> Value {
    let tidy = |schema: &mut Schema| {
        let required: Vec<Value> =
            schema.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
        let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
        for (name, property) in properties.into_iter().flatten() {
            let Some(property) = property.as_object_mut() else { continue };
            if !required.contains(&json!(name)) {
                remove_null(property);
            }
        }
    };
    RecursiveTransform(tidy).transform(&mut schema);
    plain(schema)
}

/// Removes `null` from the values of a schema.
fn remove_null(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [one] = types.as_slice() {
            let one = one.clone();
            schema.insert("type".to_owned(), one);
        }
    }
    if let Some(Value::Array(mut variants)) = schema.remove("anyOf") {
        variants.retain(|variant| variant["type"] != "null");
        let name = if variants.len() == 1 { "allOf" } else { "anyOf" };
        schema.insert(name.to_owned(), variants.into());
    }
}

fn input(name: &str) -> String {
    format!("{name}Input")
}

/// Returns whether a schema refers to one of these components.
fn refers_to(schema: &Value, names: &[String]) -> bool {
    match schema {
        Value::Object(fields) => fields.iter().any(|(key, value)| match value.as_str() {
            Some(target) if key == "$ref" => {
                name_of(target).is_some_and(|name| names.iter().any(|n| n == name))
            }
            _ => refers_to(value, names),
        }),
        Value::Array(items) => items.iter().any(|item| refers_to(item, names)),
        _ => false,
    }
}

/// Changes references to these components to those for requests.
fn rename(schema: &mut Value, names: &[String]) {
    match schema {
        Value::Object(fields) => {
            for (key, value) in fields {
                match value.as_str().and_then(name_of).filter(|_| key == "$ref") {
                    Some(name) if names.iter().any(|n| n == name) => {
                        *value = format!("{FOLDER}{}", input(name)).into()
                    }
                    Some(_) => {}
                    None => rename(value, names),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, names)),
        _ => {}
    }
}

/// Returns the name of the component that a reference is to.
fn name_of(target: &str) -> Option<&str> {
    target.strip_prefix(FOLDER)
}
