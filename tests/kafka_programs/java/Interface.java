import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeConsumerGroupsOptions;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaFilter;

/**
 * Makes the calls by which user interfaces in Java (kafbat UI, AKHQ, Kafdrop) show and change a
 * cluster, and prints a line for each: its name, a tab, and what came back or the error.
 *
 * <p>Usage: java Interface.java bootstrap topic. The topic has records, and a group of its name
 * has read some.
 */
public class Interface {
    interface Call {
        Object make() throws Exception;
    }

    static void tell(String name, Call call) throws Exception {
        Object found;
        try {
            found = call.make();
        } catch (ExecutionException error) {
            found = error.getCause().getClass().getSimpleName();
        }
        System.out.println(name + "\t" + found);
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        String topic = arguments[1];
        try (Admin admin = Admin.create(settings)) {
            showCluster(admin);
            showTopic(admin, topic);
            showGroup(admin, topic);
            change(admin, topic);
        }
    }

    static void showCluster(Admin admin) throws Exception {
        DescribeClusterOptions asked = new DescribeClusterOptions().includeAuthorizedOperations(true);
        tell("nodes", () -> admin.describeCluster(asked).nodes().get().size());
        tell("controller", () -> admin.describeCluster(asked).controller().get() != null);
        tell("operations", () -> admin.describeCluster(asked).authorizedOperations().get() != null);
        int node = admin.describeCluster().nodes().get().iterator().next().id();
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "" + node);
        DescribeConfigsOptions all = new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true);
        tell("broker", () -> admin.describeConfigs(List.of(broker), all).all().get().get(broker).get("node.id").value());
        tell("log dirs", () -> admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).size());
        tell("features", () -> admin.describeFeatures().featureMetadata().get().supportedFeatures().containsKey("group.version"));
        tell("quorum", () -> admin.describeMetadataQuorum().quorumInfo().get());
        tell("acls", () -> admin.describeAcls(AclBindingFilter.ANY).values().get().size());
        tell("quotas", () -> admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().size());
        tell("users", () -> admin.describeUserScramCredentials().all().get().size());
        tell("reassignments", () -> admin.listPartitionReassignments().reassignments().get().size());
        tell("transactions", () -> admin.listTransactions().all().get().size());
        tell("metrics", () -> admin.listConfigResources(Set.of(ConfigResource.Type.CLIENT_METRICS), new ListConfigResourcesOptions()).all().get().size());
    }

    static void showTopic(Admin admin, String topic) throws Exception {
        TopicPartition first = new TopicPartition(topic, 0);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        tell("topics", () -> admin.listTopics().names().get().contains(topic));
        tell("topic", () -> admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
        tell("config", () -> admin.describeConfigs(List.of(resource)).all().get().get(resource).get("cleanup.policy").value());
        tell("start", () -> admin.listOffsets(Map.of(first, OffsetSpec.earliest())).all().get().get(first).offset());
        tell("end", () -> admin.listOffsets(Map.of(first, OffsetSpec.latest())).all().get().get(first).offset());
        tell("newest", () -> admin.listOffsets(Map.of(first, OffsetSpec.maxTimestamp())).all().get().get(first).offset());
        tell("by time", () -> admin.listOffsets(Map.of(first, OffsetSpec.forTimestamp(1))).all().get().get(first).offset());
        tell("producers", () -> admin.describeProducers(List.of(first)).all().get().get(first).activeProducers().size());
    }

    static void showGroup(Admin admin, String group) throws Exception {
        DescribeConsumerGroupsOptions asked = new DescribeConsumerGroupsOptions().includeAuthorizedOperations(true);
        tell("groups", () -> admin.listGroups(ListGroupsOptions.forConsumerGroups()).all().get().stream().anyMatch(each -> each.groupId().equals(group)));
        tell("group", () -> admin.describeConsumerGroups(List.of(group), asked).all().get().get(group).groupState());
        Map<String, ListConsumerGroupOffsetsSpec> everything = Map.of(group, new ListConsumerGroupOffsetsSpec());
        tell("committed", () -> admin.listConsumerGroupOffsets(everything).all().get().get(group).values().iterator().next().offset());
        tell("share groups", () -> admin.listGroups(ListGroupsOptions.forShareGroups()).all().get().size());
        tell("streams groups", () -> admin.listGroups(ListGroupsOptions.forStreamsGroups()).all().get().size());
    }

    static void change(Admin admin, String topic) throws Exception {
        TopicPartition first = new TopicPartition(topic, 0);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        Collection<AlterConfigOp> operations = List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "3600000"), AlterConfigOp.OpType.SET));
        tell("alter config", () -> admin.incrementalAlterConfigs(Map.of(resource, operations)).all().get());
        tell("add partitions", () -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get());
        tell("delete records", () -> admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(1))).lowWatermarks().get(first).get().lowWatermark());
        tell("reset", () -> admin.alterConsumerGroupOffsets(topic, Map.of(first, new OffsetAndMetadata(1))).all().get());
        tell("delete group", () -> admin.deleteConsumerGroups(List.of(topic)).all().get());
        tell("copy", () -> admin.createTopics(List.of(new NewTopic(topic + "-copy", 3, (short) 3))).all().get());
        tell("delete", () -> admin.deleteTopics(List.of(topic + "-copy")).all().get());
    }
}
