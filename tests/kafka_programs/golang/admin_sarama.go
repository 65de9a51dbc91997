package main

import (
	"context"

	"github.com/IBM/sarama"
)

// saramaAdmin looks after a topic and its group, and prints what each call found.
func saramaAdmin(_ context.Context, bootstrap string, as *login) (any, error) {
	admin, err := sarama.NewClusterAdmin([]string{bootstrap}, saramaConfig(as))
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	const topic = "sarama-admin"
	if err := saramaTopic(bootstrap, as, topic, 2); err != nil {
		return nil, err
	}
	if err := saramaSend(bootstrap, saramaConfig(as), topic, 0, count); err != nil {
		return nil, err
	}
	seen := map[string]any{}
	steps := []struct {
		name string
		call func() (any, error)
	}{
		{"brokers", func() (any, error) { found, _, err := admin.DescribeCluster(); return len(found), err }},
		{"topics", func() (any, error) { found, err := admin.ListTopics(); return found[topic].NumPartitions, err }},
		{"described", func() (any, error) {
			found, err := admin.DescribeTopics([]string{topic})
			return len(found[0].Partitions), err
		}},
		{"alter config", func() (any, error) {
			day := "86400000"
			change := sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &day}
			return nil, admin.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": change}, false)
		}},
		{"config", func() (any, error) {
			asked := &sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}}
			found, err := admin.DescribeConfigs([]*sarama.ConfigResource{asked}, sarama.DescribeConfigsOptions{IncludeSynonyms: true})
			if err != nil {
				return nil, err
			}
			return found[0].Configs[0].Value, nil
		}},
		{"old alter config", func() (any, error) {
			hour := "3600000"
			return nil, admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{"retention.ms": &hour}, false)
		}},
		{"add partitions", func() (any, error) { return nil, admin.CreatePartitions(topic, 4, nil, false) }},
		{"delete records", func() (any, error) { return nil, admin.DeleteRecords(topic, map[int32]int64{0: 10}) }},
		{"offsets", func() (any, error) {
			found, err := admin.ListOffsets(map[string]map[int32]int64{topic: {0: sarama.OffsetOldest, 1: sarama.OffsetNewest}}, nil)
			if err != nil {
				return nil, err
			}
			return []int64{found[topic][0].Offset, found[topic][1].Offset}, nil
		}},
		{"commit", func() (any, error) {
			offsets := map[string]map[int32]sarama.OffsetAndMetadata{topic: {0: {Offset: 20}}}
			found, err := admin.AlterConsumerGroupOffsets(topic, offsets, nil)
			if err != nil {
				return nil, err
			}
			return found.Errors[topic][0], nil
		}},
		{"groups", func() (any, error) { found, err := admin.ListConsumerGroups(); _, is := found[topic]; return is, err }},
		{"group", func() (any, error) {
			found, err := admin.DescribeConsumerGroups([]string{topic})
			return found[0].State, err
		}},
		{"committed", func() (any, error) {
			found, err := admin.ListConsumerGroupOffsets(topic, nil)
			if err != nil {
				return nil, err
			}
			return found.GetBlock(topic, 0).Offset, nil
		}},
		{"log dirs", func() (any, error) { found, err := admin.DescribeLogDirs([]int32{1}); return len(found), err }},
		{"acls", func() (any, error) {
			found, err := admin.ListAcls(sarama.AclFilter{ResourceType: sarama.AclResourceAny, ResourcePatternTypeFilter: sarama.AclPatternAny, PermissionType: sarama.AclPermissionAny, Operation: sarama.AclOperationAny})
			return len(found), err
		}},
		{"users", func() (any, error) { found, err := admin.DescribeUserScramCredentials(nil); return len(found), err }},
		{"quotas", func() (any, error) { found, err := admin.DescribeClientQuotas(nil, false); return len(found), err }},
		{"delete offset", func() (any, error) { return nil, admin.DeleteConsumerGroupOffset(topic, topic, 0) }},
		{"delete group", func() (any, error) { return nil, admin.DeleteConsumerGroup(topic) }},
		{"delete topic", func() (any, error) { return nil, admin.DeleteTopic(topic) }},
	}
	for _, step := range steps {
		found, err := step.call()
		if err != nil {
			found = err.Error()
		}
		seen[step.name] = found
	}
	return seen, nil
}
