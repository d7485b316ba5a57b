//! Amounts of the resources that a quota counts.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A resource that a quota counts. The order is the order in which resources are shown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Brokers: the size of a cluster.
    Nodes,
    /// Pods: of the brokers and of the services.
    Pods,
    /// Thousandths of a core.
    Cpu,
    /// Bytes.
    Memory,
    /// GPUs of any vendor.
    Gpus,
    /// Another resource of the Kubernetes cluster, by its full name; in thousandths.
    Other(Arc<str>),
}

impl Resource {
    /// An amount as Kubernetes writes quantities: `4`, `500m`, `3Gi`.
    pub fn to_quantity(&self, amount: i64) -> String {
        match self {
            Resource::Nodes | Resource::Pods | Resource::Gpus => amount.to_string(),
            Resource::Cpu | Resource::Other(_) if amount % 1000 == 0 => (amount / 1000).to_string(),
            Resource::Cpu | Resource::Other(_) => format!("{amount}m"),
            Resource::Memory => bytes(amount),
        }
    }

    /// An amount with its unit, for messages: `1 node`, `500m cpu`, `3Gi memory`.
    pub fn describe(&self, amount: i64) -> String {
        let quantity = self.to_quantity(amount);
        match self {
            Resource::Nodes if amount == 1 => format!("{quantity} node"),
            Resource::Pods if amount == 1 => format!("{quantity} pod"),
            Resource::Gpus if amount == 1 => format!("{quantity} gpu"),
            _ => format!("{quantity} {self}"),
        }
    }
}

/// Uses the largest unit in which the amount is a whole number, so that nothing is rounded.
fn bytes(amount: i64) -> String {
    const UNITS: [&str; 6] = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
    let (mut amount, mut unit) = (amount, 0);
    while amount != 0 && amount % 1024 == 0 && unit + 1 < UNITS.len() {
        amount /= 1024;
        unit += 1;
    }
    format!("{amount}{}", UNITS[unit])
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Resource::Nodes => "nodes",
            Resource::Pods => "pods",
            Resource::Cpu => "cpu",
            Resource::Memory => "memory",
            Resource::Gpus => "gpus",
            Resource::Other(name) => name,
        })
    }
}

/// Parses the name of a resource in a quota.
impl FromStr for Resource {
    type Err = ParseResourceError;

    fn from_str(text: &str) -> Result<Resource, ParseResourceError> {
        match text {
            "nodes" => Ok(Resource::Nodes),
            "pods" => Ok(Resource::Pods),
            "cpu" => Ok(Resource::Cpu),
            "memory" => Ok(Resource::Memory),
            "gpus" => Ok(Resource::Gpus),
            _ if text.contains('/') => Ok(Resource::Other(text.into())),
            _ => Err(ParseResourceError),
        }
    }
}

/// The text is not the name of a resource that a quota counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseResourceError;

impl fmt::Display for ParseResourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a quota counts nodes, pods, cpu, memory, gpus, or a resource of the cluster by its \
             full name, such as nvidia.com/gpu",
        )
    }
}

impl std::error::Error for ParseResourceError {}

/// Amounts of some resources, in order.
///
/// It is used for amounts and for limits. In an amount a zero has no meaning, and sums and
/// differences leave it out. In limits (a setup's quota, what a ResourceQuota leaves) a zero
/// is a limit like any other, while a resource that is missing is not limited. So
/// [`Resources::of`] keeps zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resources(Vec<(Resource, i64)>);

impl Resources {
    /// These amounts, including zeros. Amounts of the same resource are added.
    pub fn of(amounts: impl IntoIterator<Item = (Resource, i64)>) -> Resources {
        let mut all = Resources::default();
        for (resource, amount) in amounts {
            match all.find(&resource) {
                Ok(at) => all.0[at].1 = all.0[at].1.saturating_add(amount),
                Err(at) => all.0.insert(at, (resource, amount)),
            }
        }
        all
    }

    /// The amount of a resource, if it is listed.
    pub fn get(&self, resource: &Resource) -> Option<i64> {
        self.find(resource).ok().map(|at| self.0[at].1)
    }

    /// The amount of a resource; 0 if it is not listed.
    pub fn amount(&self, resource: &Resource) -> i64 {
        self.get(resource).unwrap_or_default()
    }

    /// Each resource with its amount, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Resource, i64)> {
        self.0.iter().map(|(resource, amount)| (resource, *amount))
    }

    /// Whether no resource is listed, not even with 0.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds amounts.
    pub fn add(&mut self, more: &Resources) {
        self.combine(more, i64::saturating_add);
    }

    /// Subtracts amounts.
    pub fn subtract(&mut self, less: &Resources) {
        self.combine(less, i64::saturating_sub);
    }

    /// The amounts, multiplied by a factor.
    pub fn times(&self, factor: u32) -> Resources {
        let all = self
            .0
            .iter()
            .map(|(resource, amount)| (resource.clone(), amount.saturating_mul(i64::from(factor))));
        Resources(all.filter(|(_, amount)| *amount != 0).collect())
    }

    /// Whether the amounts are within limits, if nothing else is used.
    pub fn fits(&self, limits: &Resources) -> bool {
        self.first_excess(limits).is_none()
    }

    /// The first resource whose amount exceeds its limit, and by how much.
    pub fn first_excess(&self, limits: &Resources) -> Option<(Resource, i64)> {
        self.iter().find_map(|(resource, amount)| {
            let missing = amount.saturating_sub(limits.get(resource)?);
            (amount > 0 && missing > 0).then(|| (resource.clone(), missing))
        })
    }

    fn combine(&mut self, other: &Resources, with: fn(i64, i64) -> i64) {
        for (resource, amount) in other.iter().filter(|(_, amount)| *amount != 0) {
            match self.find(resource) {
                Ok(at) => self.0[at].1 = with(self.0[at].1, amount),
                Err(at) => self.0.insert(at, (resource.clone(), with(0, amount))),
            }
        }
        self.0.retain(|(_, amount)| *amount != 0);
    }

    fn find(&self, resource: &Resource) -> Result<usize, usize> {
        self.0.binary_search_by(|(each, _)| each.cmp(resource))
    }
}

/// `nodes 4, cpu 500m, memory 3Gi`; without any resource, `nothing`.
impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        for (number, (resource, amount)) in self.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{resource} {}", resource.to_quantity(amount))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes_and_cpu(nodes: i64, cpu: i64) -> Resources {
        Resources::of([(Resource::Cpu, cpu), (Resource::Nodes, nodes)])
    }

    #[test]
    fn amounts_are_written_as_kubernetes_writes_them() {
        let gpu = Resource::Other("nvidia.com/gpu".into());
        let cases = [
            (Resource::Nodes, 1, "1 node"),
            (Resource::Nodes, 2, "2 nodes"),
            (Resource::Cpu, 500, "500m cpu"),
            (Resource::Cpu, 2000, "2 cpu"),
            (Resource::Memory, 3 << 30, "3Gi memory"),
            (Resource::Memory, 1536 << 20, "1536Mi memory"),
            (Resource::Memory, 1000, "1000 memory"),
            (Resource::Memory, 0, "0 memory"),
            (gpu, 4000, "4 nvidia.com/gpu"),
        ];
        for (resource, amount, text) in cases {
            assert_eq!(resource.describe(amount), text);
        }
        let all = Resources::of([(Resource::Memory, 3 << 30), (Resource::Nodes, 4)]);
        assert_eq!(all.to_string(), "nodes 4, memory 3Gi");
        assert_eq!(Resources::default().to_string(), "nothing");
    }

    #[test]
    fn a_resource_is_read_by_the_name_it_is_shown_with() {
        for text in ["nodes", "pods", "cpu", "memory", "gpus", "example.com/fpga"] {
            assert_eq!(text.parse::<Resource>().unwrap().to_string(), text);
        }
        assert_eq!("gpu".parse::<Resource>(), Err(ParseResourceError));
    }

    #[test]
    fn sums_leave_zeros_out_and_limits_keep_them() {
        let mut sum = nodes_and_cpu(1, 500);
        sum.add(&nodes_and_cpu(1, 500));
        assert_eq!(sum, nodes_and_cpu(2, 1000));
        sum.subtract(&nodes_and_cpu(2, 0));
        assert_eq!(sum, Resources::of([(Resource::Cpu, 1000)]));
        sum.subtract(&sum.clone());
        assert!(sum.is_empty());
        assert_eq!(Resources::of([(Resource::Gpus, 0)]).get(&Resource::Gpus), Some(0));
        assert_eq!(nodes_and_cpu(1, 0).times(3), Resources::of([(Resource::Nodes, 3)]));
    }

    #[test]
    fn sums_saturate() {
        let mut sum = nodes_and_cpu(i64::MAX, 1);
        sum.add(&nodes_and_cpu(1, 1));
        assert_eq!(sum, nodes_and_cpu(i64::MAX, 2));
        assert_eq!(nodes_and_cpu(i64::MAX, 1).times(2), nodes_and_cpu(i64::MAX, 2));
    }

    #[test]
    fn what_is_not_limited_fits_and_what_is_limited_to_zero_does_not() {
        assert!(nodes_and_cpu(4, 500).fits(&Resources::of([(Resource::Nodes, 4)])));
        let none = Resources::of([(Resource::Cpu, 0)]);
        assert_eq!(nodes_and_cpu(4, 500).first_excess(&none), Some((Resource::Cpu, 500)));
        assert_eq!(
            nodes_and_cpu(4, 500).first_excess(&nodes_and_cpu(2, 0)),
            Some((Resource::Nodes, 2))
        );
        // A job that uses none of an overused resource still fits.
        assert!(nodes_and_cpu(4, 0).fits(&Resources::of([(Resource::Cpu, -500)])));
    }
}
