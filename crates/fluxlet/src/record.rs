//! A job with the keys of `flux job list`, in the same order.

use flux_operator_flux::JobId;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

/// A job as `flux job list` prints it. Times are in seconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    #[serde(serialize_with = "number")]
    pub id: JobId,
    pub userid: u32,
    pub urgency: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u64>,
    pub t_submit: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub t_depend: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub t_priority: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub t_sched: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub t_run: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub t_cleanup: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub t_inactive: Option<f64>,
    /// The number of the state.
    pub state: u64,
    pub name: String,
    pub cwd: String,
    pub ntasks: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ncores: Option<u64>,
    pub duration: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nnodes: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodelist: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub success: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exception_occurred: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exception_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exception_severity: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exception_note: Option<String>,
    /// The number of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expiration: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waitstatus: Option<i32>,
}

impl JobRecord {
    /// Creates a record with only an ID.
    pub fn new(id: JobId) -> Self {
        Self {
            id,
            userid: 0,
            urgency: 0,
            priority: None,
            t_submit: 0.0,
            t_depend: None,
            t_priority: None,
            t_sched: None,
            t_run: None,
            t_cleanup: None,
            t_inactive: None,
            state: 0,
            name: String::new(),
            cwd: String::new(),
            ntasks: 0,
            ncores: None,
            duration: 0.0,
            nnodes: None,
            ranks: None,
            nodelist: None,
            success: None,
            exception_occurred: None,
            exception_type: None,
            exception_severity: None,
            exception_note: None,
            result: None,
            expiration: None,
            annotations: None,
            waitstatus: None,
        }
    }
}

/// Serializes an ID as a number, as `flux job list` does; [`JobId`] would be text.
fn number<S: Serializer>(id: &JobId, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(id.number())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_flux() {
        let record = JobRecord { nnodes: Some(1), ..JobRecord::new(JobId::from(7)) };
        let json = serde_json::to_string(&record).unwrap();
        let flux = r#"{"id":7,"userid":0,"urgency":0,"t_submit":0.0,"state":0,"name":"","cwd":"","ntasks":0,"duration":0.0,"nnodes":1}"#;
        assert_eq!(json, flux);
        assert_eq!(serde_json::from_str::<JobRecord>(&json).unwrap(), record);
    }
}
