//! Condition types of a Burst.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::BurstStatus;

/// The conditions of a Burst. `Joined` and `Ready` are those of one whose brokers join the instance of
/// the MiniCluster, `Finished` that of one with an instance of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BurstConditionType {
    /// The target responds.
    TargetReady,
    /// The target accepts the credentials.
    CredentialsAccepted,
    /// Everything that brokers need exists at the target; of a run, it exists or has existed.
    Prepared,
    /// All its brokers are part of the Flux instance.
    Joined,
    /// All its brokers are part of the Flux instance, and it is not being given back.
    Ready,
    /// The job has finished, successfully or not.
    Finished,
    /// It is being given back.
    GivingBack,
}

impl BurstConditionType {
    /// The value of `conditions[].type`.
    pub fn as_str(self) -> &'static str {
        match self {
            BurstConditionType::TargetReady => "TargetReady",
            BurstConditionType::CredentialsAccepted => "CredentialsAccepted",
            BurstConditionType::Prepared => "Prepared",
            BurstConditionType::Joined => "Joined",
            BurstConditionType::Ready => "Ready",
            BurstConditionType::Finished => "Finished",
            BurstConditionType::GivingBack => "GivingBack",
        }
    }
}

impl BurstStatus {
    /// Whether one of its brokers has ever joined.
    pub fn has_joined(&self) -> bool {
        self.online > 0 || !self.joined_at.is_empty()
    }

    /// The condition of a type.
    pub fn condition(&self, kind: BurstConditionType) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == kind.as_str())
    }

    /// Whether the condition of a type is true.
    pub fn is_true(&self, kind: BurstConditionType) -> bool {
        self.condition(kind).is_some_and(|condition| condition.status == "True")
    }
}
